package projector

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
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
var builtInTables = []string{"task", "task_count", "kind_stats", "illegal_event", "task_tag"}

// RebuildTasksAs is [RebuildTasks] with a record of its beginning and its end. The record succeeds in the transaction
// that replaces the tables, together with the records of killed calls; or it is dead with the error.
func RebuildTasksAs(ctx context.Context, db *pgxpool.Pool, a Act, o *RebuildOptions) error {
	key, err := operation.Begin(ctx, db, rebuildOf(TasksName, a))
	if err != nil {
		return err
	}
	if err := rebuildTasks(ctx, db, a.Actor, o); err != nil {
		return errors.Join(err, operation.Fail(ctx, db, key, a.Actor, err))
	}
	return nil
}

// RebuildTasks is [Rebuild] of the built-in projection. It needs the owner of the ledger's tables. It folds the events
// of one snapshot, task by task, and applies later events as a [Runner] does.
//
// If several calls run at a time, one works and the others return [feed.ErrSuperseded]. Other errors: [*TablesError],
// [ledger.ErrNotMigrated].
func RebuildTasks(ctx context.Context, db *pgxpool.Pool, o *RebuildOptions) error {
	return rebuildTasks(ctx, db, "", o)
}

func rebuildTasks(ctx context.Context, db *pgxpool.Pool, actor string, o *RebuildOptions) error {
	options := o.withDefaults()
	show, last := options.Progress, time.Time{}
	options.Progress = func(done, total int64) {
		show(done, total)
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		if err := recordProgress(ctx, db, TasksName, WorkRebuild, done, total); err != nil {
			options.Logger.DebugContext(ctx, "progress is not recorded", "error", err)
		}
	}
	schema := buildSchema(TasksName)
	tables := newTasks(schema, options.Logger)
	b := &build{
		db: db, options: options, actor: actor, name: TasksName, schema: schema, inUse: inUse, parks: true,
		mark: buildMark{Version: 1, Tagged: true}, target: tables,
		tables: func(Registered) []string { return builtInTables },
		make: func(ctx context.Context, tx pgx.Tx) error {
			err := execAll(ctx, tx, buildTablesSQL, schema, pgarray.Of(builtInTables...))
			if pgerr.Is(err, pgerr.UndefinedTable) {
				return &TablesError{
					Projection: TasksName, Tables: []string{"a table of the ledger"}, Reason: err.Error(),
					Cure: "make it by its statement in taskledger migrate up --print, then: taskledger migrate roles",
				}
			}
			return pgerr.Explain("rebuild tasks", err)
		},
	}
	l := loader{build: b, tasks: tables}
	b.load = l.load
	err := b.run(ctx)
	if err == nil || ctx.Err() != nil || errors.Is(err, feed.ErrSuperseded) || isOutage(err) {
		return err
	}
	if err := recordWorkEnd(ctx, db, TasksName, WorkRebuild, workError{describeFailure(err)}, nil); err != nil {
		options.Logger.DebugContext(ctx, "the failure is not recorded", "error", err)
	}
	return err
}

// loader fills the tables of the built-in projection with the events of one window, in the order of the keys. The
// window never changes, so a later process continues where an earlier one has stopped.
type loader struct {
	build *build
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
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(batches)
		return l.read(ctx, w, batches)
	})
	group.Go(func() error {
		for events := range batches {
			if err := l.write(ctx, f, events); err != nil {
				return err
			}
			fault.Point(fault.BuildBatch)
		}
		return nil
	})
	return group.Wait()
}

// read sends the events after the last one written.
func (l *loader) read(ctx context.Context, w feed.Window, batches chan<- []ledger.Event) error {
	after := l.build.mark.After
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
	rows, err := l.build.db.Query(ctx, buildEventsSQL, w.Until.Snapshot, string(after.Kind), string(after.BizID),
		int64(limit))
	if err != nil {
		return nil, err
	}
	return collectFoldEvents(rows, limit)
}

// write folds the tasks of a batch into the new tables, and records how far the build is.
func (l *loader) write(ctx context.Context, f *feed.Feed, events []ledger.Event) error {
	mark := l.build.mark
	mark.Done += int64(len(events))
	mark.After = events[len(events)-1].Key
	err := pgx.BeginTxFunc(ctx, l.build.db, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		if err := f.Mark(ctx, tx, mark.text()); err != nil {
			return err
		}
		return l.tasks.insert(ctx, tx, events)
	})
	if err != nil {
		return pgerr.Explain("rebuild tasks", err)
	}
	l.build.mark = mark
	l.build.options.Progress(min(mark.Done, l.build.total), l.build.total)
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
	mark := b.mark
	mark.Loaded, mark.After = true, ledger.Key{}
	err := pgx.BeginTxFunc(ctx, b.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		for _, sql := range []string{buildCountsSQL, buildStatsSQL} {
			if err := execAll(ctx, tx, sql, b.schema); err != nil {
				return err
			}
		}
		if err := execAll(ctx, tx, buildIndexesSQL, b.schema, pgarray.Of(builtInTables...)); err != nil {
			return err
		}
		fault.Point(fault.BuildIndex)
		return f.Pass(ctx, tx, mark.text())
	})
	if err != nil {
		return pgerr.Explain("rebuild tasks", err)
	}
	b.mark = mark
	statements, err := texts(ctx, b.db, buildAnalyzeSQL, b.schema)
	if err != nil {
		return pgerr.Explain("rebuild tasks", err)
	}
	for _, statement := range statements { // outside of a transaction
		if _, err := b.db.Exec(ctx, statement); err != nil {
			return fmt.Errorf("rebuild tasks: %w", err)
		}
	}
	return nil
}
