package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/build_drop.sql
	buildDropSQL string
	//go:embed sql/build_schema.sql
	buildSchemaSQL string
	//go:embed sql/build_age.sql
	buildAgeSQL string
	//go:embed sql/last_position.sql
	lastPositionSQL string
)

// RebuildOptions configures [Rebuild] and [RebuildTasks]. Nil is the default of every field.
type RebuildOptions struct {
	// Progress is called after each part, with the events that are done and about how many there are. Default: none.
	Progress func(done, total int64)
	// PageSize is the maximum number of events that one transaction applies. Default: 1000.
	PageSize int
	// Logger logs the reasons why the rebuild waits. Default: [slog.Default].
	Logger *slog.Logger
}

func (o *RebuildOptions) withDefaults() RebuildOptions {
	var d RebuildOptions
	if o != nil {
		d = *o
	}
	if d.Progress == nil {
		d.Progress = func(_, _ int64) {}
	}
	d.Logger = logger(d.Logger)
	return d
}

// Rebuild builds the tables of a projection from the first event in a separate schema, and replaces the tables in use
// when it has caught up. Runners may work meanwhile, and readers read the old tables until the new ones are complete.
// Rebuild recreates views that use the tables, and keeps rights on the tables. It commits after each page. If it is
// killed, the next call continues, or begins again if the projection has changed.
//
// If several calls run at a time, one works and the others return [feed.ErrSuperseded]. So does a call while a program
// of a higher version builds its tables. Other errors: [*ApplyError], [*VersionError], [*TablesError],
// [ErrUnknownProjection], [ledger.ErrNotMigrated].
func Rebuild(ctx context.Context, db *pgxpool.Pool, p Projection, o *RebuildOptions) error {
	return rebuild(ctx, db, p, "", o)
}

func rebuild(ctx context.Context, db *pgxpool.Pool, p Projection, actor string, o *RebuildOptions) error {
	if err := p.Validate(); err != nil {
		return err
	}
	have, found, err := readRegistered(ctx, db, p.Name)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("projection %q: %w", p.Name, ErrUnknownProjection)
	case have.Version > p.Version:
		return &VersionError{Projection: p.Name, Tables: have.Version, Program: p.Version}
	}
	schema := buildSchema(p.Name)
	b := &build{
		db: db, options: o.withDefaults(), actor: actor, name: p.Name, schema: schema, inUse: p.Name,
		mark:  buildMark{Version: p.Version, Shape: p.shape()},
		parks: p.OnFailure == Park,
		target: &ownTables{
			Projection: p, schema: schema, parkedAs: buildOf(p.Name), db: db,
			invalidate: func(ctx context.Context) error { return feed.Forget(ctx, db, reader(buildOf(p.Name))) },
		},
		make: func(ctx context.Context, tx pgx.Tx) error {
			_, err := makeTables(ctx, tx, p, schema)
			return err
		},
		tables: func(have Registered) []string { return have.Tables },
	}
	return b.run(ctx)
}

// buildSchema returns the schema in which the tables of a projection are built.
func buildSchema(name string) string { return "taskledger_build_" + name }

// build is a rebuild under way.
type build struct {
	db      *pgxpool.Pool
	options RebuildOptions
	actor   string // of the end of the record
	name    string // of the projection
	schema  string // of the new tables
	inUse   string // schema of those in use
	mark    buildMark
	parks   bool
	target  target
	total   int64 // positions

	make   func(context.Context, pgx.Tx) error // makes the new tables
	tables func(Registered) []string           // returns the names of the tables in use
	// load fills them up to the end of a window, if that is faster than page by page. Nil: it is not.
	load func(context.Context, *feed.Feed) error
}

// buildMark is the mark in the cursor rows of a build: its version and shape and, while it is loaded, its progress.
type buildMark struct {
	Version int        `json:"version"`
	Shape   string     `json:"shape"`
	Loaded  bool       `json:"loaded"` // up to the cursor; else up to After
	After   ledger.Key `json:"after,omitzero"`
	Done    int64      `json:"done"` // events

	// Tagged is whether tags are added, as in followerMark. A build of an older version of the built-in projection
	// leaves it out, and begins again.
	Tagged bool `json:"tagged,omitempty"`
}

func (m buildMark) text() json.RawMessage {
	text, _ := json.Marshal(m) // strings and numbers
	return text
}

func (b *build) run(ctx context.Context) error {
	if _, err := pgquery.Row(ctx, b.db, lastPositionSQL, nil, &b.total); err != nil {
		return pgerr.Explain("rebuild "+b.name, err)
	}
	f, err := b.open(ctx)
	if err != nil {
		return err
	}
	if b.load != nil && !b.mark.Loaded {
		if err := b.load(ctx, f); err != nil {
			return err
		}
	}
	backoff := loop.Backoff{Min: swapRetry, Max: swapRetryMost}
	for {
		if f, err = b.openFeed(ctx); err != nil {
			return err
		}
		if err := b.catchUp(ctx, f); err != nil {
			return err
		}
		mark := b.mark
		err := b.swap(ctx, f)
		if err == nil {
			b.options.Progress(b.total, b.total)
			fault.Point(fault.SwapDone)
			return nil
		}
		if !pgerr.Is(err, pgerr.LockNotAvailable, pgerr.DeadlockDetected) {
			return err
		}
		b.mark = mark // the swap's mark was rolled back
		if f, err = b.openFeed(ctx); err != nil {
			return err
		}
		if err := f.Mark(ctx, b.db, b.mark.text()); err != nil {
			return err
		}
		b.options.Progress(min(b.mark.Done, b.total), b.total)
		wait := backoff.Next()
		b.options.Logger.WarnContext(ctx, "the tables are in use; the rebuild tries again", "retry_in", wait,
			"by", b.users(ctx))
		if err := loop.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (b *build) openFeed(ctx context.Context) (*feed.Feed, error) {
	return feed.Open(ctx, b.db, reader(buildOf(b.name)), &feed.Options{
		PageSize: b.options.PageSize, AuditEvery: -1,
	})
}

// open returns the feed of the build at the place that an earlier call has reached, or begins from the start. It does
// not touch a running build of a program with other tables, unless those have an older version.
func (b *build) open(ctx context.Context) (*feed.Feed, error) {
	f, err := b.openFeed(ctx)
	if err != nil {
		return nil, err
	}
	var have buildMark
	if mark := f.Cursor().Mark; json.Unmarshal(mark, &have) != nil {
		have = buildMark{}
	}
	hasTables, err := checkSchema(ctx, b.db, b.name, b.schema)
	if err != nil {
		return nil, err
	}
	switch {
	case hasTables && have.Version == b.mark.Version && have.Shape == b.mark.Shape && have.Tagged == b.mark.Tagged:
		b.mark = have
		return f, nil
	case have.Version >= b.mark.Version:
		if err := b.mustHaveStopped(ctx, have); err != nil {
			return nil, err
		}
	}
	b.mark.Loaded, b.mark.Done = b.load == nil, 0
	err = pgx.BeginTxFunc(ctx, b.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := f.Restart(ctx, tx, b.mark.text()); err != nil {
			return err
		}
		if err := dropTables(ctx, tx, b.name, b.schema, buildOf(b.name)); err != nil {
			return err
		}
		return b.make(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	fault.Point(fault.BuildMade)
	return f, nil
}

// buildStopped is the time without progress after which a program with other tables takes over a build.
var buildStopped = time.Minute

// mustHaveStopped returns an error if the build of other tables is under way.
func (b *build) mustHaveStopped(ctx context.Context, have buildMark) error {
	var age int64
	found, err := pgquery.Row(ctx, b.db, buildAgeSQL, []any{reader(buildOf(b.name))}, &age)
	if err == nil && found && time.Duration(age)*time.Microsecond < buildStopped {
		err = fmt.Errorf("version %d is being built: %w", have.Version, feed.ErrSuperseded)
	}
	return pgerr.Explain("rebuild "+b.name, err)
}

// checkSchema reports whether a schema for new tables contains any. It returns a [*TablesError] if another login has
// made it, because its content is unknown then.
func checkSchema(ctx context.Context, db ledger.DB, name, schema string) (hasTables bool, err error) {
	var owner string
	var isOwn bool
	found, err := pgquery.Row(ctx, db, buildSchemaSQL, []any{schema}, &owner, &isOwn, &hasTables)
	if err == nil && found && !isOwn {
		return false, &TablesError{
			Projection: name, Tables: []string{"schema " + schema}, Reason: "it belongs to " + owner,
			Cure: "drop it, or work as " + owner,
		}
	}
	return hasTables, pgerr.Explain("read schema "+schema, err)
}

// dropTables removes the tables of an earlier build or verification, and the events it has parked.
func dropTables(ctx context.Context, tx pgx.Tx, name, schema, parkedAs string) error {
	if err := execAll(ctx, tx, buildDropSQL, schema); err != nil {
		return pgerr.Explain("drop schema "+schema, err)
	}
	if name == TasksName {
		return nil
	}
	return removeParked(ctx, tx, parkedAs, nil)
}

// execAll executes the statements that a query returns.
func execAll(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	statements, err := texts(ctx, tx, sql, args...)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// catchUp applies pages until few events are left.
func (b *build) catchUp(ctx context.Context, f *feed.Feed) error {
	for {
		page, ok, err := f.Poll(ctx)
		if err != nil || !ok {
			return err
		}
		b.mark.Done += int64(len(page.Events))
		err = transact(ctx, b.db, b.target, func(tx pgx.Tx) error {
			return page.Advance(ctx, tx, b.mark.text())
		}, page.Events)
		if err != nil {
			return err
		}
		fault.Point(fault.BuildBatch)
		b.options.Progress(min(b.mark.Done, b.total), b.total)
		if page.Last() && len(page.Events) < nearEnough {
			return nil
		}
	}
}

const (
	// nearEnough is the number of events that may be left when the tables are replaced.
	nearEnough = 1000
	// swapRetry is the delay after which the tables are replaced if others have locked them; it doubles up to
	// swapRetryMost. While the swap waits for a lock, readers wait behind it.
	swapRetry     = 500 * time.Millisecond
	swapRetryMost = 10 * time.Second
)

// runBuilds builds the tables of the projection when their version is older, and executes operators' requests.
func (o *own) runBuilds(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			done, err := o.buildIfAsked(ctx)
			switch {
			case errors.Is(err, feed.ErrSuperseded):
				return loop.Jitter(o.config.Standby), nil
			case err != nil && ctx.Err() == nil && o.stop(err) == nil:
				o.log.ErrorContext(ctx, "the build of the projection failed", "error", err)
				return loop.Jitter(o.config.RetryFailed), nil
			case done:
				return 0, nil
			}
			return loop.Jitter(requestsEvery), err
		},
		Stop: o.stop,
	}.Run(ctx)
}

// buildIfAsked reports whether it had any work.
func (o *own) buildIfAsked(ctx context.Context) (bool, error) {
	have, found, err := readRegistered(ctx, o.db, o.Name)
	if err != nil || !found || have.Version > o.Version {
		return false, err
	}
	var work string
	switch {
	case have.Version < o.Version:
		work = WorkRebuild
	case have.shape != o.shape():
		return false, nil
	default:
		work = have.Wanted
	}
	var result any
	switch work {
	case WorkRebuild:
		result = struct{}{}
		err = rebuild(ctx, o.config.DB, o.Projection, runnerActor, &RebuildOptions{
			Progress: o.reportProgress(ctx, work), PageSize: o.config.PageSize,
			Logger: o.log,
		})
	case WorkVerify:
		result, err = VerifyProjection(ctx, o.config.DB, o.Projection, &RebuildOptions{
			Progress: o.reportProgress(ctx, work), PageSize: o.config.PageSize,
			Logger: o.log,
		})
	default:
		return false, nil
	}
	return true, o.endWork(ctx, work, result, err)
}

// endWork records the end of a piece of work, and the event that stops it.
func (o *own) endWork(ctx context.Context, work string, result any, failure error) error {
	if ctx.Err() != nil || errors.Is(failure, feed.ErrSuperseded) || isOutage(failure) {
		return failure
	}
	var apply *ApplyError
	if errors.As(failure, &apply) {
		if err := recordFailure(ctx, o.db, apply); err != nil {
			return err
		}
	}
	if failure != nil {
		result = workError{describeFailure(failure)}
	}
	if err := recordWorkEnd(ctx, o.config.DB, o.Name, work, result, failure); err != nil {
		return err
	}
	return failure
}

// workError is the result of work that has failed.
type workError struct {
	Error string `json:"error"`
}

// reportProgress returns a function that records progress now and then.
func (o *own) reportProgress(ctx context.Context, work string) func(done, total int64) {
	var last time.Time
	return func(done, total int64) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		if err := recordProgress(ctx, o.db, o.Name, work, done, total); err != nil {
			o.log.DebugContext(ctx, "progress is not recorded", "error", err)
		}
	}
}

const progressEvery = 500 * time.Millisecond
