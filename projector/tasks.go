package projector

import (
	"cmp"
	"context"
	_ "embed"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

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

// tasks is the built-in projection, in a schema. It is one projection and not several: counts and statistics change by
// a task's state before and after a page, and the states before are read when the tasks are written.
type tasks struct {
	log    *slog.Logger
	schema string
	sql    statements
	stats  statsMerger
	pages  grouper
	known  *known // nil: each row is read

	// hasForeignRows is set once a row was found that no event of its task explains: a program has inserted it
	// manually.
	hasForeignRows bool
}

// inUse is the schema of the tables that are in use.
const inUse = "taskledger"

func newTasks(schema string, log *slog.Logger) *tasks {
	return &tasks{log: logger(log), schema: schema, sql: statementsIn(schema)}
}

// statements are the statements that write the tables.
type statements struct {
	before, insert, update, countsAdd, countsPrune, statsAdd, statsMerge, illegalAdd, tagsAdd string
}

// ownTable matches the tables of the projection in a statement.
var ownTable = regexp.MustCompile(`\btaskledger\.(task|task_count|kind_stats|kind_hour|illegal_event|task_tag)\b`)

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

func (*tasks) begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	return conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin()})
}

// pageStall is how long a process that is stopped in the transaction of a page can keep others from the projection.
var pageStall = 10 * time.Second

// begin returns the statements that begin the transaction of a page. Its commit does not wait for the disk: a crash
// undoes tables and cursor together. The transaction reads rows by key or address, so sequential scans are off: a plan
// made while a table was small must not scan it when it is large. This raises estimated costs, so JIT compilation is
// off. One generic plan is enough, since no plan depends on the parameters.
func begin() string {
	return "begin isolation level read committed; set local synchronous_commit to off; " +
		"set local enable_seqscan to off; set local jit to off; set local plan_cache_mode to force_generic_plan; " +
		"set local idle_in_transaction_session_timeout to " + strconv.FormatInt(pageStall.Milliseconds(), 10)
}

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

// folded returns the changes without those whose first event does not fold.
func folded(changes []*change) []*change {
	return slices.DeleteFunc(changes, func(c *change) bool { return c.task.Version == 0 })
}

// change is the effect of a page on one task.
type change struct {
	key     ledger.Key
	events  []ledger.Event
	address string         // of the row before; empty: the task is new
	isKnown bool           // the address is of an earlier transaction
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

// grouper groups events by task. It reuses the previous page's memory, because a change is larger than an event.
type grouper struct {
	order   []int
	tasks   []change
	changes []*change
}

// release frees everything that the changes of the last page refer to. They must no longer be used.
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

// readBefore reads the rows of the tasks to which events are applied, except known rows. A task whose first event is
// among them has no row yet: the cursor, which commits with the tables, passes each event once.
func (p *tasks) readBefore(ctx context.Context, tx pgx.Tx, changes []*change) error {
	unknown := make([]*change, 0, len(changes))
	text := 0
	for _, c := range changes {
		if c.events[0].Version == 1 && !p.hasForeignRows {
			continue
		}
		if address, t, ok := p.known.take(c.key); ok {
			c.address, c.isKnown, c.was, c.before, c.task = address, true, t.State, t.Version, t
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

// fold applies the events of a change. If they do not continue the row, fold reads the whole history. A history that
// does not fold is projected up to the last event that does, and logged.
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
