package projector

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"

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

// Tasks returns the built-in projection: the tables task and task_count. It is one projection
// and not two because a count changes by what a task was before and is now, and the states
// before are in hand when the tasks are written. Nil log: discard.
func Tasks(log *slog.Logger) Projection {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &tasks{log}
}

type tasks struct{ log *slog.Logger }

func (*tasks) Name() string { return Reader }
func (*tasks) Version() int { return 1 }

// Apply folds the events onto the tasks as the table has them. It takes four
// statements, however many events there are.
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
	changes = slices.DeleteFunc(changes, func(c *change) bool { return c.after.Version == 0 }) // not even the first event folds
	if err := write(ctx, tx, changes); err != nil {
		return err
	}
	return addCounts(ctx, tx, changes)
}

// change is what a page does to one task.
type change struct {
	key     ledger.Key
	events  []ledger.Event
	before  ledger.Task
	address string // of the row before; empty: the task is new
	after   ledger.Task
}

func (c *change) new() bool { return c.address == "" }

// byTask groups the events by task, sorted by key: every page takes the rows in one order.
func byTask(events []ledger.Event) []*change {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b ledger.Event) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Version, b.Version))
	})
	changes := make([]*change, 0, len(events))
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Key == sorted[0].Key {
			n++
		}
		changes = append(changes, &change{key: sorted[0].Key, events: sorted[:n]})
		sorted = sorted[n:]
	}
	return changes
}

func readBefore(ctx context.Context, tx pgx.Tx, changes []*change) error {
	var kinds, ids array
	for _, c := range changes {
		kinds.add(string(c.key.Kind))
		ids.add(string(c.key.BizID))
	}
	rows, err := tx.Query(ctx, tasksBeforeSQL, kinds.String(), ids.String())
	if err != nil {
		return explain("read tasks", err)
	}
	defer rows.Close()
	for rows.Next() {
		var i int
		var address string
		var t ledger.Task
		if err := rows.Scan(&i, &address, (*int)(&t.Shard), (*string)(&t.State), (*int32)(&t.Version), (*int32)(&t.Attempt),
			&t.Failures, &t.EnqueuedAt, &t.UpdatedAt, &t.Error); err != nil {
			return explain("read tasks", err)
		}
		t.Key = changes[i].key
		changes[i].before, changes[i].address = t, address
	}
	return explain("read tasks", rows.Err())
}

// fold applies the events of a change. Where they do not continue the row, the whole history
// decides; a history that does not fold is projected up to where it does, and said.
func (p *tasks) fold(ctx context.Context, tx pgx.Tx, c *change) error {
	c.after = c.before
	for _, e := range c.events {
		next, err := c.after.Apply(e)
		if err != nil {
			return p.foldHistory(ctx, tx, c)
		}
		c.after = next
	}
	return nil
}

func (p *tasks) foldHistory(ctx context.Context, tx pgx.Tx, c *change) error {
	history, err := ledger.History(ctx, tx, c.key)
	if err != nil {
		return err
	}
	if c.after, err = ledger.Fold(history); err != nil {
		p.log.ErrorContext(ctx, "task does not fold; it is kept as it was before the illegal event",
			"task", c.key.String(), "error", err)
	}
	return nil
}

// columns are the values of task rows, one array a column, without what names the rows.
type columns struct {
	shards, states, asides, versions, attempts, failures, enqueued, updated, problems, fingerprints, due array
	rows                                                                                                 int64
}

func (c *columns) add(t ledger.Task) {
	aside := int64(0)
	if t.State.Aside() {
		aside = 1
	}
	c.shards.addInt(int64(t.Shard))
	c.states.add(string(t.State))
	c.asides.addInt(aside)
	c.versions.addInt(int64(t.Version))
	c.attempts.addInt(int64(t.Attempt))
	c.failures.addInt(int64(t.Failures))
	c.enqueued.addTime(t.EnqueuedAt)
	c.updated.addTime(t.UpdatedAt)
	c.problems.addOptional(t.Error)
	c.fingerprints.addOptional(t.Fingerprint)
	c.due.addOptionalTime(t.DueAt)
	c.rows++
}

// args returns the arrays that name the rows, then the values.
func (c *columns) args(naming ...*array) []any {
	args := make([]any, 0, 13)
	for _, a := range append(naming, &c.shards, &c.states, &c.asides, &c.versions, &c.attempts, &c.failures,
		&c.enqueued, &c.updated, &c.problems, &c.fingerprints, &c.due) {
		args = append(args, a.String())
	}
	return args
}

func write(ctx context.Context, tx pgx.Tx, changes []*change) error {
	var kinds, ids, causes, addresses array
	var added, updated columns
	for _, c := range changes {
		if c.new() {
			kinds.add(string(c.key.Kind))
			ids.add(string(c.key.BizID))
			causes.addOptional(causeOf(c.after))
			added.add(c.after)
		} else {
			addresses.add(c.address)
			updated.add(c.after)
		}
	}
	if added.rows > 0 {
		if _, err := tx.Exec(ctx, tasksInsertSQL, append(added.args(&kinds, &ids), causes.String())...); err != nil {
			return explain("insert tasks", err)
		}
	}
	if updated.rows > 0 {
		tag, err := tx.Exec(ctx, tasksUpdateSQL, updated.args(&addresses)...)
		if err != nil {
			return explain("update tasks", err)
		}
		if tag.RowsAffected() != updated.rows {
			return fmt.Errorf("update tasks: %d of %d rows were changed by somebody else meanwhile",
				updated.rows-tag.RowsAffected(), updated.rows)
		}
	}
	return nil
}

// causeOf is the cause of a task as its row has it; "" for none.
func causeOf(t ledger.Task) string {
	if t.Cause == (ledger.Key{}) {
		return ""
	}
	return t.Cause.String()
}
