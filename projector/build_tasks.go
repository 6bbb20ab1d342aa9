package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/build_lock.sql
	buildLockSQL string
	//go:embed sql/build_tables.sql
	buildTablesSQL string
	//go:embed sql/build_indexes.sql
	buildIndexesSQL string
	//go:embed sql/build_events.sql
	buildEventsSQL string
	//go:embed sql/build_counts.sql
	buildCountsSQL string
	//go:embed sql/build_stats.sql
	buildStatsSQL string
	//go:embed sql/build_analyze.sql
	buildAnalyzeSQL string
)

// builtInTables are the tables of the built-in projection. The registry has them too, which the role relay may write:
// the owner replaces these and no others.
var builtInTables = []string{"task", "task_count", "kind_stats", "kind_hour", "illegal_event", "task_tag"}

// RebuildOptions configures [RebuildTasks]. Nil is the default of every field.
type RebuildOptions = rebuild.Options

// TablesError reports tables of the built-in projection that do not exist, or that cannot be made or replaced.
type TablesError = rebuild.TablesError

// Act is the author and the reason of an act of an operator.
type Act struct {
	Actor  string // Default: the database's session_user.
	Reason string // Default: none.
}

// rebuildTasksOf returns the operation of rebuilding the built-in projection.
func rebuildTasksOf(a Act) operation.Operation {
	about := map[string]string{"projection": TasksName}
	return operation.Operation{
		Action: operation.RebuildProjection, Actor: a.Actor, Reason: a.Reason, Same: about, Detail: maps.Clone(about),
	}
}

// RebuildTasksAs is [RebuildTasks] with a record of its beginning and its end. The record succeeds in the transaction
// that replaces the tables, together with the records of killed calls; or it is dead with the error.
func RebuildTasksAs(ctx context.Context, db *pgxpool.Pool, a Act, o *RebuildOptions) error {
	key, err := operation.Begin(ctx, db, rebuildTasksOf(a))
	if err != nil {
		return err
	}
	if err := rebuildTasks(ctx, db, a.Actor, o); err != nil {
		return errors.Join(err, operation.Fail(ctx, db, key, a.Actor, err))
	}
	return nil
}

// RebuildTasks builds the tables of the built-in projection from the first event in a separate schema, and replaces the
// tables in use when it has caught up. Runners may work meanwhile, and readers read the old tables until the new ones
// are complete. It recreates views that use the tables, and keeps rights on the tables. It commits after each batch. If
// it is killed, the next call continues. It needs the owner of the ledger's tables. It folds the events of one
// snapshot, task by task, and applies later events as a [Runner] does.
//
// If several calls run at a time, one works and the others return [feed.ErrSuperseded]. Other errors: [*TablesError],
// [ledger.ErrNotMigrated].
func RebuildTasks(ctx context.Context, db *pgxpool.Pool, o *RebuildOptions) error {
	return rebuildTasks(ctx, db, "", o)
}

func rebuildTasks(ctx context.Context, db *pgxpool.Pool, actor string, o *RebuildOptions) error {
	options := o.WithDefaults()
	show := options.Progress
	record := rebuild.ShowProgress(ctx, db, feed.ProjectorReader, rebuild.WorkRebuild, options.Logger)
	options.Progress = func(done, total int64) {
		show(done, total)
		record(done, total)
	}
	schema := rebuild.Schema(TasksName)
	tables := newTasks(schema, options.Logger)
	b := &rebuild.Build{
		DB: db, Options: options, Operation: rebuildTasksOf(Act{Actor: actor}),
		Name: "projection " + TasksName, Reader: feed.ProjectorReader, Schema: schema, InUse: inUse,
		Owned: builtInTables, Mark: rebuild.Mark{Version: 1, Tagged: true}, Parks: true,
		Target: &tasksBuild{tables, db},
	}
	l := loader{build: b, tasks: tables}
	b.Load = l.load
	err := b.Run(ctx)
	if err == nil || ctx.Err() != nil || errors.Is(err, feed.ErrSuperseded) || rebuild.IsOutage(err) {
		return err
	}
	ended := rebuild.RecordEnd(ctx, db, feed.ProjectorReader, rebuild.WorkRebuild, nil, err, operation.Operation{})
	if err := ended; err != nil {
		options.Logger.DebugContext(ctx, "the failure is not recorded", "error", err)
	}
	return err
}

// tasksBuild are the tables of the built-in projection that are being built.
type tasksBuild struct {
	*tasks

	db *pgxpool.Pool
}

// ApplyPage is part of the interface [rebuild.Target].
func (t *tasksBuild) ApplyPage(ctx context.Context, advance func(pgx.Tx) error, events []ledger.Event) error {
	return t.transact(ctx, t.db, advance, func(tx pgx.Tx) error { return t.apply(ctx, tx, events) })
}

// InPage is part of the interface [rebuild.Target].
func (t *tasksBuild) InPage(ctx context.Context, f func(pgx.Tx) error) error {
	return t.inPage(ctx, t.db, f)
}

// Apply is part of the interface [rebuild.Target].
func (t *tasksBuild) Apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	return t.apply(ctx, tx, events)
}

// Make is part of the interface [rebuild.Target]. It waits until the archive removes no task: while the schema exists,
// it removes none.
func (t *tasksBuild) Make(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, buildLockSQL); err != nil {
		return pgerr.Explain("rebuild tasks", err)
	}
	err := pgquery.ExecAll(ctx, tx, buildTablesSQL, t.schema, pgarray.Of(builtInTables...))
	if pgerr.Is(err, pgerr.UndefinedTable) {
		return &TablesError{
			Of: "projection " + TasksName, Tables: []string{"a table of the ledger"}, Reason: err.Error(),
			Cure: "make it by its statement in taskledger migrate up --print, then: taskledger migrate roles",
		}
	}
	return pgerr.Explain("rebuild tasks", err)
}

// Clear is part of the interface [rebuild.Target]. A build stores nothing elsewhere.
func (*tasksBuild) Clear(context.Context, pgx.Tx) error { return nil }

// Swap is part of the interface [rebuild.Target]. The list of lingering tasks begins again.
func (*tasksBuild) Swap(context.Context, pgx.Tx) (json.RawMessage, error) {
	return markOf(feed.Place{Window: feed.Window{Seen: feed.Beginning()}}, tagHistory{}), nil
}

// loader fills the tables of the built-in projection with the events of one window, in the order of the keys. The
// window never changes, so a later process continues where an earlier one has stopped.
type loader struct {
	build *rebuild.Build
	tasks *tasks
}

// loadBatch is the number of events in a batch, unless one task has more. Two batches are in memory: one is read while
// another is written.
var loadBatch = 20_000

func (l *loader) load(ctx context.Context, f *feed.Feed) error {
	window, ok, err := f.Bulk(ctx)
	if err != nil {
		return err
	}
	if ok {
		if err := l.fold(ctx, f, window); err != nil {
			return err
		}
	}
	return l.index(ctx, f)
}

// fold reads batches and writes them, both at a time.
func (l *loader) fold(ctx context.Context, f *feed.Feed, w feed.Window) error {
	batches := make(chan []ledger.Event)
	read := func(ctx context.Context) error {
		defer close(batches)
		return l.read(ctx, w, batches)
	}
	write := func(ctx context.Context) error {
		for events := range batches {
			if err := l.write(ctx, f, events); err != nil {
				return err
			}
			fault.Point(fault.BuildBatch)
		}
		return nil
	}
	return loop.Together(ctx, read, write)
}

// read sends the events after the last one written.
func (l *loader) read(ctx context.Context, w feed.Window, batches chan<- []ledger.Event) error {
	after := l.build.Mark.After
	for limit := loadBatch; ; {
		events, err := l.readBatch(ctx, w, after, limit)
		if err != nil {
			return pgerr.Explain("rebuild tasks", err)
		}
		isLast := len(events) < limit
		if !isLast {
			if events = events[:wholeTasks(events)]; len(events) == 0 { // one task fills the batch
				limit *= 2
				continue
			}
		}
		if len(events) > 0 {
			select {
			case batches <- events:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			after, limit = events[len(events)-1].Key, loadBatch
		}
		if isLast {
			return nil
		}
	}
}

func (l *loader) readBatch(ctx context.Context, w feed.Window, after ledger.Key, limit int) ([]ledger.Event, error) {
	rows, err := l.build.DB.Query(ctx, buildEventsSQL, w.Until.Snapshot, string(after.Kind), string(after.BizID),
		int64(limit))
	if err != nil {
		return nil, err
	}
	return collectFoldEvents(rows, limit)
}

// write folds the tasks of a batch into the new tables, and records how far the build is.
func (l *loader) write(ctx context.Context, f *feed.Feed, events []ledger.Event) error {
	mark := l.build.Mark
	mark.Done += int64(len(events))
	mark.After = events[len(events)-1].Key
	err := pgx.BeginTxFunc(ctx, l.build.DB, pgx.TxOptions{BeginQuery: begin()}, func(tx pgx.Tx) error {
		if err := f.Mark(ctx, tx, mark.Text()); err != nil {
			return err
		}
		return l.tasks.insert(ctx, tx, events)
	})
	if err != nil {
		return pgerr.Explain("rebuild tasks", err)
	}
	l.build.Mark = mark
	l.build.Options.Progress(min(mark.Done, l.build.Total), l.build.Total)
	return nil
}

// insert folds events of tasks that are missing in the tables.
func (p *tasks) insert(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	changes := p.pages.byTask(events)
	defer p.pages.release()
	stats := newStats()
	for _, c := range changes {
		if err := p.fold(ctx, tx, c, stats); err != nil {
			return err
		}
	}
	changes = folded(changes)
	if err := p.copyTasks(ctx, tx, changes); err != nil {
		return err
	}
	var w writes
	p.addTags(&w, changes)
	p.addStats(&w, stats)
	return w.send(ctx, tx)
}

// index makes the indexes, counts the tasks, and passes the window, in one transaction.
func (l *loader) index(ctx context.Context, f *feed.Feed) error {
	b := l.build
	mark := b.Mark
	mark.Loaded, mark.After = true, ledger.Key{}
	err := pgx.BeginTxFunc(ctx, b.DB, pgquery.Brief, func(tx pgx.Tx) error {
		for _, sql := range []string{buildCountsSQL, buildStatsSQL} {
			if err := pgquery.ExecAll(ctx, tx, sql, b.Schema); err != nil {
				return err
			}
		}
		if err := pgquery.ExecAll(ctx, tx, buildIndexesSQL, b.Schema, pgarray.Of(builtInTables...)); err != nil {
			return err
		}
		fault.Point(fault.BuildIndex)
		return f.Pass(ctx, tx, mark.Text())
	})
	if err != nil {
		return pgerr.Explain("rebuild tasks", err)
	}
	b.Mark = mark
	statements, err := pgquery.Texts(ctx, b.DB, buildAnalyzeSQL, b.Schema)
	if err != nil {
		return pgerr.Explain("rebuild tasks", err)
	}
	for _, statement := range statements { // outside of a transaction
		if _, err := b.DB.Exec(ctx, statement); err != nil {
			return fmt.Errorf("rebuild tasks: %w", err)
		}
	}
	return nil
}
