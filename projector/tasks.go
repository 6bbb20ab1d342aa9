package projector

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/tasks_before.sql
	tasksBeforeSQL string
	//go:embed sql/tasks_insert.sql
	tasksInsertSQL string
	//go:embed sql/tasks_update.sql
	tasksUpdateSQL string
)

// Reader is the name under which the cursor of the built-in projection is kept.
const Reader = "projector"

// Tasks returns the built-in projection: the tables task and task_count. It is one projection and not two: a
// count changes by a task's state before and after a page, and the states before are read when the tasks are
// written. Nil log: disabled.
func Tasks(log *slog.Logger) Projection {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &tasks{log}
}

type tasks struct{ log *slog.Logger }

func (*tasks) Name() string { return Reader }
func (*tasks) Version() int { return 1 }

// Apply folds the events onto the rows of their tasks. It takes four statements, however many events there
// are.
func (p *tasks) Apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	changes := byTask(events)
	if err := readBefore(ctx, tx, changes); err != nil {
		return err
	}
	for _, c := range changes {
		if err := p.fold(ctx, tx, c); err != nil {
			return err
		}
	}
	// not even the first event folds
	changes = slices.DeleteFunc(changes, func(c *change) bool { return c.task.Version == 0 })
	if err := write(ctx, tx, changes); err != nil {
		return err
	}
	return addCounts(ctx, tx, changes)
}

// change is the effect of a page on one task.
type change struct {
	key     ledger.Key
	events  []ledger.Event
	address string       // of the row before; empty: the task is new
	was     ledger.State // of the row before
	task    ledger.Task  // as in the row, then as after the events
}

func (c *change) new() bool { return c.address == "" }

// byTask groups the events by task, sorted by key: every page locks the rows in one order.
func byTask(events []ledger.Event) []*change {
	order := make([]int, len(events)) // events are too large to be moved about
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(events[a].Key.Compare(events[b].Key), cmp.Compare(events[a].Version, events[b].Version), a-b)
	})
	sorted := make([]ledger.Event, len(events))
	for i, from := range order {
		sorted[i] = events[from]
	}
	tasks := make([]change, 0, len(events)) // does not grow, so that pointers into it stay valid
	changes := make([]*change, 0, len(events))
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Key == sorted[0].Key {
			n++
		}
		tasks = append(tasks, change{key: sorted[0].Key, events: sorted[:n]})
		changes = append(changes, &tasks[len(tasks)-1])
		sorted = sorted[n:]
	}
	return changes
}

// readBefore reads the rows of the tasks to which events are applied.
func readBefore(ctx context.Context, tx pgx.Tx, changes []*change) error {
	var kinds, ids pgarray.Builder
	for _, c := range changes {
		kinds.Add(string(c.key.Kind))
		ids.Add(string(c.key.BizID))
	}
	rows, err := tx.Query(ctx, tasksBeforeSQL, kinds.String(), ids.String())
	if err != nil {
		return pgerr.Explain("read tasks", err)
	}
	defer rows.Close()
	var i int
	var address string
	var t ledger.Task
	columns := []any{&i, &address, (*string)(&t.State), (*int32)(&t.Version), (*int32)(&t.Attempt), &t.Failures,
		&t.Error}
	for rows.Next() {
		t = ledger.Task{}
		if err := rows.Scan(columns...); err != nil {
			return pgerr.Explain("read tasks", err)
		}
		c := changes[i]
		t.Key = c.key
		c.address, c.was, c.task = address, t.State, t
	}
	return pgerr.Explain("read tasks", rows.Err())
}

// fold applies the events of a change. If they do not continue the row, fold reads the whole history. A
// history that does not fold is projected up to the last event that does, and logged.
func (p *tasks) fold(ctx context.Context, tx pgx.Tx, c *change) error {
	for _, e := range c.events {
		if e.Type == ledger.EventSucceeded {
			e.Data = nil // the result, which is not projected and need not be decoded
		}
		next, err := c.task.Apply(e)
		if err != nil {
			return p.foldHistory(ctx, tx, c)
		}
		c.task = next
	}
	return nil
}

func (p *tasks) foldHistory(ctx context.Context, tx pgx.Tx, c *change) error {
	history, err := ledger.History(ctx, tx, c.key)
	if err != nil {
		return err
	}
	if c.task, err = ledger.Fold(history); err != nil {
		p.log.ErrorContext(ctx, "task does not fold; it is kept as it was before the illegal event",
			"task", c.key.String(), "error", err)
		return addIllegal(ctx, tx, c.key, err)
	}
	return nil
}

// columns are the values of task rows that an event may change, one array for each column.
type columns struct {
	states, exceptional, versions, attempts, failures, updated, problems, fingerprints, due pgarray.Builder
	rows                                                                                    int64
}

func (c *columns) add(t ledger.Task) {
	exceptional := int64(0)
	if t.State.Exceptional() {
		exceptional = 1
	}
	c.states.Add(string(t.State))
	c.exceptional.AddInt(exceptional)
	c.versions.AddInt(int64(t.Version))
	c.attempts.AddInt(int64(t.Attempt))
	c.failures.AddInt(int64(t.Failures))
	c.updated.AddInt(t.UpdatedAt.UnixMicro())
	c.problems.AddOptional(t.Error)
	c.fingerprints.AddOptional(t.Fingerprint)
	c.due.AddOptionalTime(t.DueAt)
	c.rows++
}

// args returns naming, the arrays that name the rows and their constant values, and then c's arrays.
func (c *columns) args(naming ...*pgarray.Builder) []any {
	args := make([]any, 0, 13)
	for _, a := range append(naming, &c.states, &c.exceptional, &c.versions, &c.attempts, &c.failures,
		&c.updated, &c.problems, &c.fingerprints, &c.due) {
		args = append(args, a.String())
	}
	return args
}

func write(ctx context.Context, tx pgx.Tx, changes []*change) error {
	var kinds, ids, shards, enqueued, causes, addresses pgarray.Builder
	var added, updated columns
	for _, c := range changes {
		if c.new() {
			kinds.Add(string(c.key.Kind))
			ids.Add(string(c.key.BizID))
			shards.AddInt(int64(c.task.Shard))
			enqueued.AddInt(c.task.EnqueuedAt.UnixMicro())
			causes.AddOptional(causeOf(c.task))
			added.add(c.task)
		} else {
			addresses.Add(c.address)
			updated.add(c.task)
		}
	}
	if added.rows > 0 {
		if _, err := tx.Exec(ctx, tasksInsertSQL,
			append(added.args(&kinds, &ids, &shards, &enqueued), causes.String())...); err != nil {
			return pgerr.Explain("insert tasks", err)
		}
	}
	if updated.rows > 0 {
		tag, err := tx.Exec(ctx, tasksUpdateSQL, updated.args(&addresses)...)
		if err != nil {
			return pgerr.Explain("update tasks", err)
		}
		if tag.RowsAffected() != updated.rows {
			return fmt.Errorf("update tasks: %d of %d rows were changed by another transaction",
				updated.rows-tag.RowsAffected(), updated.rows)
		}
	}
	return nil
}

// causeOf returns the cause of a task as in its row; "" if it has no cause.
func causeOf(t ledger.Task) string {
	if t.Cause == (ledger.Key{}) {
		return ""
	}
	return t.Cause.String()
}
