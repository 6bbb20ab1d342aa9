package projector

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// columns are the values of task rows that an event may change, one array for each column.
type columns struct {
	states, exceptional, versions, attempts, failures, updated, problems, fingerprints, due, priorities pgarray.Builder
	partitions                                                                                          pgarray.Builder
	rows                                                                                                int64
}

// grow reserves room for n rows without errors.
func (c *columns) grow(n int) {
	const state, micros = len("succeeded"), 13 // the digits of a time that Grow does not allow for
	c.states.Grow(n, n*state)
	c.updated.Grow(n, n*micros)
	c.versions.Grow(n, 0)
}

// asideOf returns the task's state for the column aside, "" unless it is exceptional.
func asideOf(t ledger.Task) string {
	if t.State.Exceptional() {
		return string(t.State)
	}
	return ""
}

func (c *columns) add(t ledger.Task) {
	exceptional := int64(0)
	if t.State.Exceptional() {
		exceptional = 1
	}
	c.states.Add(string(t.State))
	c.exceptional.AddOptionalInt(exceptional)
	c.versions.AddInt(int64(t.Version))
	c.attempts.AddOptionalInt(int64(t.Attempt))
	c.failures.AddOptionalInt(int64(t.Failures))
	c.updated.AddInt(t.UpdatedAt.UnixMicro())
	c.problems.Empties, c.fingerprints.Empties = true, true
	c.problems.AddOptional(t.Error)
	c.fingerprints.AddOptional(t.Fingerprint)
	c.due.AddOptionalTime(t.DueAt)
	c.priorities.AddOptionalInt(priorityOf(t))
	c.partitions.Empties = true
	c.partitions.AddOptional(t.Partition)
	c.rows++
}

// args returns naming, the arrays that name the rows and their constant values, and then c's arrays.
func (c *columns) args(naming ...*pgarray.Builder) []any {
	args := make([]any, 0, 16)
	for _, a := range append(naming, &c.states, &c.exceptional, &c.versions, &c.attempts, &c.failures,
		&c.updated, &c.problems, &c.fingerprints, &c.due, &c.priorities, &c.partitions) {
		args = append(args, a.String())
	}
	return args
}

// addTasks inserts and updates the rows of the tasks.
func (p *tasks) addTasks(w *writes, changes []*change) {
	p.insertRows(w, changes)
	p.updateRows(w, changes)
}

// insertRows inserts the rows of new tasks.
func (p *tasks) insertRows(w *writes, changes []*change) {
	n, text := 0, 0
	for _, c := range changes {
		if c.new() {
			n++
			text += len(c.key.BizID)
		}
	}
	if n == 0 {
		return
	}
	var kinds, ids, shards, enqueued, causes pgarray.Builder
	var added columns
	kinds.Grow(n, n*len(changes[0].key.Kind)) // most pages have few kinds
	ids.Grow(n, text)
	shards.Grow(n, 0)
	enqueued.Grow(n, n*13)
	added.grow(n)
	causes.Empties = true
	for _, c := range changes {
		if !c.new() {
			continue
		}
		kinds.Add(string(c.key.Kind))
		ids.Add(string(c.key.BizID))
		shards.AddInt(int64(c.task.Shard))
		enqueued.AddInt(c.task.EnqueuedAt.UnixMicro())
		causes.AddOptional(causeOf(c.task))
		added.add(c.task)
	}
	args := append(added.args(&kinds, &ids, &shards, &enqueued), causes.String())
	w.addQuery(insertTasks, p.sql.insert, args, func(rows pgx.Rows) error { return p.note(rows, changes) })
}

// note stores the addresses of the rows of new tasks, in the order of the changes.
func (p *tasks) note(rows pgx.Rows, changes []*change) error {
	defer rows.Close()
	var address pgquery.Borrowed
	for _, c := range changes {
		if !c.new() {
			continue
		}
		if !rows.Next() {
			break
		}
		if err := rows.Scan(&address); err != nil {
			return err
		}
		p.known.add(c.task, string(address))
	}
	rows.Close()
	return rows.Err()
}

// updateRows updates the rows of tasks that are not new. If some addresses are known from earlier transactions, keys
// and versions are compared.
func (p *tasks) updateRows(w *writes, changes []*change) {
	n, text, hasKnown := 0, 0, false
	for _, c := range changes {
		if !c.new() {
			n++
			text += len(c.key.BizID)
			hasKnown = hasKnown || c.isKnown
		}
	}
	if n == 0 {
		return
	}
	var addresses, kinds, ids, before pgarray.Builder
	var updated columns
	addresses.Grow(n, n*len("(12345,67)"))
	updated.grow(n)
	if hasKnown {
		kinds.Grow(n, n*len(changes[0].key.Kind))
		ids.Grow(n, text)
		before.Grow(n, 0)
	}
	for _, c := range changes {
		if c.new() {
			continue
		}
		addresses.Add(c.address)
		updated.add(c.task)
		if hasKnown {
			kinds.Add(string(c.key.Kind))
			ids.Add(string(c.key.BizID))
			before.AddInt(int64(c.before))
		}
	}
	args := updated.args(&addresses, &kinds, &ids, &before)
	w.add("update tasks", p.sql.update, args, func(tag pgconn.CommandTag) error {
		if n := tag.RowsAffected(); n != updated.rows {
			return fmt.Errorf("%d of %d rows were changed by another transaction", updated.rows-n, updated.rows)
		}
		return nil
	})
}

// priorityOf returns the priority of a task as the statements need it: 0 for normal, the usual one.
func priorityOf(t ledger.Task) int64 {
	if level := t.Priority.Level(); level != ledger.PriorityNormal {
		return int64(level)
	}
	return 0
}

// causeOf returns the cause of a task as in its row, or "".
func causeOf(t ledger.Task) string {
	if t.Cause == (ledger.Key{}) {
		return ""
	}
	return t.Cause.String()
}
