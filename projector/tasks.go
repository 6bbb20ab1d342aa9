package projector

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
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

// tasks is the built-in projection, in a schema. It is one projection and not several: counts and statistics change by
// a task's state before and after a page, and the states before are read when the tasks are written.
type tasks struct {
	log    *slog.Logger
	schema string
	sql    statements
	stats  statsMerger
	pages  grouper
	known  known

	// hasForeignRows is set once a row was found that no event of its task explains: a program has inserted it by hand.
	hasForeignRows bool
}

// inUse is the schema of the tables that are in use.
const inUse = "taskledger"

func newTasks(schema string, log *slog.Logger) *tasks {
	return &tasks{log: logger(log), schema: schema, sql: statementsIn(schema)}
}

// statements are those that write the tables.
type statements struct {
	before, insert, update, countsAdd, countsPrune, statsAdd, statsMerge, illegalAdd, tagsAdd string
}

// ownTable matches the tables of the projection in a statement.
var ownTable = regexp.MustCompile(`\btaskledger\.(task|task_count|kind_stats|illegal_event|task_tag)\b`)

// statementsIn returns the statements for the tables in a schema, whose name needs no quotes.
func statementsIn(schema string) statements {
	in := func(sql string) string { return ownTable.ReplaceAllString(sql, schema+".$1") }
	return statements{
		before: in(tasksBeforeSQL), insert: in(tasksInsertSQL), update: in(tasksUpdateSQL),
		countsAdd: in(countsAddSQL), countsPrune: in(countsPruneSQL),
		statsAdd: in(statsAddSQL), statsMerge: statsMergeSQL, illegalAdd: in(illegalAddSQL),
		tagsAdd: in(tagsAddSQL),
	}
}

func (p *tasks) begin() string { return begin }
func (*tasks) name() string    { return TasksName }

// park reports that no event stops this projection for good: those that do not fold are recorded.
func (*tasks) park(context.Context, pgx.Tx, ledger.Event, error) (bool, error) { return false, nil }
func (*tasks) breaks(context.Context, *brokenError) error                      { return nil }

// begin starts the transaction of a page. Its commit does not wait for the disk: a crash undoes tables and
// cursor together. The transaction reads rows by key or address, so sequential scans are off: a plan made
// while a table was small must not scan it when it is large. This raises estimated costs, so JIT compilation
// is off. One generic plan is enough, since no plan depends on the parameters.
const begin = "begin isolation level read committed; set local synchronous_commit to off; " +
	"set local enable_seqscan to off; set local jit to off; set local plan_cache_mode to force_generic_plan"

// apply folds the events onto the rows of their tasks. It takes two round trips, however many events there are,
// and one if it knows all rows.
func (p *tasks) apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) (err error) {
	defer func() {
		if err != nil { // rows may be elsewhere than they were known to be
			p.known.clear()
		}
	}()
	changes := p.pages.byTask(events)
	defer p.pages.release()
	if err := p.readBefore(ctx, tx, changes); err != nil {
		return err
	}
	stats := newStats()
	for _, c := range changes {
		if err := p.fold(ctx, tx, c, stats); err != nil {
			return err
		}
	}
	changes = folded(changes)
	var w writes
	p.addTasks(&w, changes)
	p.addTags(&w, changes)
	p.addStats(&w, stats)
	added := p.addCounts(&w, changes)
	if err := w.send(ctx, tx); err != nil {
		p.hasForeignRows = p.hasForeignRows || w.failed() == insertTasks && pgerr.Is(err, pgerr.UniqueViolation)
		return err
	}
	return p.prune(ctx, tx, *added)
}

// insertTasks is the name of a statement.
const insertTasks = "insert tasks"

// folded returns the changes without those of which not even the first event folds.
func folded(changes []*change) []*change {
	return slices.DeleteFunc(changes, func(c *change) bool { return c.task.Version == 0 })
}

// change is the effect of a page on one task.
type change struct {
	key     ledger.Key
	events  []ledger.Event
	address string         // of the row before; empty: the task is new
	was     ledger.State   // of the row before
	before  ledger.Version // of the row before
	task    ledger.Task    // as in the row, then as after the events

	tags     []string        // if the first event of the task is applied
	position ledger.Position // of that event
}

// tag notes the tags of the task if e is its first event.
func (c *change) tag(e ledger.Event) {
	if e.Version == 1 {
		c.tags, c.position = tagsOf(e.Meta), e.Position
	}
}

func (c *change) new() bool { return c.address == "" }

// grouper groups events by task. Its memory is that of the page before: a change is larger than an event.
type grouper struct {
	order   []int
	tasks   []change
	changes []*change
}

// release frees what the changes of the last page refer to. They must not be used any more.
func (g *grouper) release() { clear(g.tasks) }

// byTask groups the events by task, sorted by key: every page locks the rows in one order. The changes are valid until
// the next call.
func (g *grouper) byTask(events []ledger.Event) []*change {
	order := slices.Grow(g.order[:0], len(events))[:len(events)] // events are too large to be moved about
	for i := range order {
		order[i] = i
	}
	g.order = order
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(events[a].Key.Compare(events[b].Key), cmp.Compare(events[a].Version, events[b].Version), a-b)
	})
	tasks := slices.Grow(g.tasks[:0], len(events)) // does not grow from here on, so that pointers into it stay valid
	changes := slices.Grow(g.changes[:0], len(events))
	for len(order) > 0 {
		first, n := order[0], 1
		for n < len(order) && events[order[n]].Key == events[first].Key {
			n++
		}
		of := events[first : first+1 : first+1] // most tasks have one event in a page
		for _, i := range order[1:n] {
			of = append(of, events[i])
		}
		tasks = append(tasks, change{key: events[first].Key, events: of})
		changes = append(changes, &tasks[len(tasks)-1])
		order = order[n:]
	}
	g.tasks, g.changes = tasks, changes
	return changes
}

// readBefore reads the rows of the tasks to which events are applied, but those that are known. A task whose first
// event is among them has none: the cursor, which commits with the tables, passes each event once.
func (p *tasks) readBefore(ctx context.Context, tx pgx.Tx, changes []*change) error {
	unknown := make([]*change, 0, len(changes))
	text := 0
	for _, c := range changes {
		if c.events[0].Version == 1 && !p.hasForeignRows {
			continue
		}
		if address, t, ok := p.known.take(c.key); ok {
			c.address, c.was, c.before, c.task = address, t.State, t.Version, t
			continue
		}
		unknown = append(unknown, c)
		text += len(c.key.BizID)
	}
	if len(unknown) == 0 {
		return nil
	}
	var kinds, ids pgarray.Builder
	kinds.Grow(len(unknown), len(unknown)*len(unknown[0].key.Kind)) // most pages have few kinds
	ids.Grow(len(unknown), text)
	for _, c := range unknown {
		kinds.Add(string(c.key.Kind))
		ids.Add(string(c.key.BizID))
	}
	rows, err := tx.Query(ctx, p.sql.before, kinds.String(), ids.String())
	if err != nil {
		return pgerr.Explain("read tasks", err)
	}
	defer rows.Close()
	var i int
	var address string
	var t ledger.Task
	columns := []any{&i, &address, (*string)(&t.State), (*int32)(&t.Version), (*int32)(&t.Attempt), &t.Failures,
		&t.Error, pgquery.Micros(&t.UpdatedAt)}
	for rows.Next() {
		t = ledger.Task{}
		if err := rows.Scan(columns...); err != nil {
			return pgerr.Explain("read tasks", err)
		}
		c := unknown[i]
		t.Key = c.key
		c.address, c.was, c.before, c.task = address, t.State, t.Version, t
	}
	return pgerr.Explain("read tasks", rows.Err())
}

// fold applies the events of a change. If they do not continue the row, fold reads the whole history. A
// history that does not fold is projected up to the last event that does, and logged.
func (p *tasks) fold(ctx context.Context, tx pgx.Tx, c *change, stats *stats) error {
	for _, e := range c.events {
		data := e.Data
		if e.Type == ledger.EventSucceeded {
			e.Data = nil // the result, which is not projected and need not be decoded
		}
		next, err := c.task.Apply(e)
		if err != nil {
			return p.foldHistory(ctx, tx, c, stats)
		}
		stats.add(c.task, e, next, data)
		c.tag(e)
		c.task = next
	}
	return nil
}

// foldHistory folds the task from its first event on, and counts the events that follow the row in the statistics.
func (p *tasks) foldHistory(ctx context.Context, tx pgx.Tx, c *change, stats *stats) error {
	history, err := ledger.History(ctx, tx, c.key)
	if err != nil {
		return err
	}
	counted := c.task.Version
	c.task = ledger.Task{}
	for _, e := range history {
		next, err := c.task.Apply(e)
		if err != nil {
			p.log.ErrorContext(ctx, "task does not fold; it is kept as it was before the illegal event",
				"task", c.key.String(), "error", err)
			return addIllegal(ctx, tx, p.sql.illegalAdd, c.key, err)
		}
		if e.Version > counted {
			stats.add(c.task, e, next, e.Data)
		}
		c.tag(e)
		c.task = next
	}
	return nil
}

// columns are the values of task rows that an event may change, one array for each column.
type columns struct {
	states, exceptional, versions, attempts, failures, updated, problems, fingerprints, due pgarray.Builder
	rows                                                                                    int64
}

// grow reserves room for n rows without errors.
func (c *columns) grow(n int) {
	const state, micros = len("succeeded"), 13 // the digits of a time beyond those that Grow allows for
	c.states.Grow(n, n*state)
	c.updated.Grow(n, n*micros)
	c.versions.Grow(n, 0)
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
	c.rows++
}

// args returns naming, the arrays that name the rows and their constant values, and then c's arrays.
func (c *columns) args(naming ...*pgarray.Builder) []any {
	args := make([]any, 0, 14)
	for _, a := range append(naming, &c.states, &c.exceptional, &c.versions, &c.attempts, &c.failures,
		&c.updated, &c.problems, &c.fingerprints, &c.due) {
		args = append(args, a.String())
	}
	return args
}

// addTasks inserts and updates the rows of the tasks.
func (p *tasks) addTasks(w *writes, changes []*change) {
	var kinds, ids, shards, enqueued, causes, addresses, oldKinds, oldIDs, before pgarray.Builder
	var added, updated columns
	causes.Empties = true
	fresh, text, oldText := 0, 0, 0
	for _, c := range changes {
		if c.new() {
			fresh++
			text += len(c.key.BizID)
		} else {
			oldText += len(c.key.BizID)
		}
	}
	if fresh > 0 {
		kinds.Grow(fresh, fresh*len(changes[0].key.Kind)) // most pages have few kinds
		ids.Grow(fresh, text)
		shards.Grow(fresh, 0)
		enqueued.Grow(fresh, fresh*13)
		added.grow(fresh)
	}
	if n := len(changes) - fresh; n > 0 {
		addresses.Grow(n, n*len("(12345,67)"))
		oldKinds.Grow(n, n*len(changes[0].key.Kind))
		oldIDs.Grow(n, oldText)
		before.Grow(n, 0)
		updated.grow(n)
	}
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
			oldKinds.Add(string(c.key.Kind))
			oldIDs.Add(string(c.key.BizID))
			before.AddInt(int64(c.before))
			updated.add(c.task)
		}
	}
	if added.rows > 0 {
		args := append(added.args(&kinds, &ids, &shards, &enqueued), causes.String())
		w.addQuery(insertTasks, p.sql.insert, args, func(rows pgx.Rows) error { return p.note(rows, changes) })
	}
	if updated.rows > 0 {
		args := updated.args(&addresses, &oldKinds, &oldIDs, &before)
		w.add("update tasks", p.sql.update, args, func(tag pgconn.CommandTag) error {
			if n := tag.RowsAffected(); n != updated.rows {
				return fmt.Errorf("%d of %d rows were changed by another transaction",
					updated.rows-n, updated.rows)
			}
			return nil
		})
	}
}

// note notes where the rows of new tasks are, in the order of the changes.
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

// addTags adds the tags of tasks whose first events are applied.
func (p *tasks) addTags(w *writes, changes []*change) {
	var rows tagRows
	for _, c := range changes {
		rows.add(c.tags, c.position)
	}
	if !rows.tags.IsEmpty() {
		w.add("add tags", p.sql.tagsAdd, rows.args(), nil)
	}
}

// causeOf returns the cause of a task as in its row; "" if it has no cause.
func causeOf(t ledger.Task) string {
	if t.Cause == (ledger.Key{}) {
		return ""
	}
	return t.Cause.String()
}
