package rebuild

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/build_age.sql
	buildAgeSQL string
	//go:embed sql/last_position.sql
	lastPositionSQL string
)

// Options configures a rebuild or a verification. Nil is the default of every field.
type Options struct {
	// Progress is called after each part, with the events that are done and about how many there are. Default: none.
	Progress func(done, total int64)
	// PageSize is the maximum number of events that one transaction applies. Default: 1000.
	PageSize int
	// Logger logs the reasons why the rebuild waits. Default: [slog.Default].
	Logger *slog.Logger
}

// WithDefaults returns the options with the default of every field that is not set.
func (o *Options) WithDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Progress == nil {
		d.Progress = func(_, _ int64) {}
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	return d
}

// Target applies events to the new tables of a [Build].
type Target interface {
	// ApplyPage applies events in a transaction whose first step is advance, and commits it.
	ApplyPage(ctx context.Context, advance func(pgx.Tx) error, events []ledger.Event) error
	// InPage calls f in a transaction like that of ApplyPage, and commits it.
	InPage(ctx context.Context, f func(pgx.Tx) error) error
	// Apply applies events in the transaction of InPage.
	Apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error
	// Make makes the new tables, in a schema that does not exist.
	Make(ctx context.Context, tx pgx.Tx) error
	// Clear removes the rows of an earlier build outside its schema.
	Clear(ctx context.Context, tx pgx.Tx) error
	// Swap is called in the transaction that moves the new tables to the place of the old ones. It returns the mark of
	// the reader's cursor.
	Swap(ctx context.Context, tx pgx.Tx) (json.RawMessage, error)
}

// Build is a rebuild of the tables of a reader.
type Build struct {
	DB      *pgxpool.Pool
	Options Options
	// Operation is the record of the rebuild, which ends in the transaction that replaces the tables.
	Operation operation.Operation
	Name      string // in errors, such as "subscriber coupons"
	Reader    string // whose tables are replaced, and whose cursor moves with them
	Schema    string // of the new tables
	InUse     string // schema of those in use
	// Owned are the names of the tables in use. Nil: the registry has them, and the schema was made for them alone.
	Owned  []string
	Mark   Mark
	Parks  bool
	Target Target
	// Archive contains the events of archived tasks. Nil: they are left out.
	Archive feed.Archive
	// Load fills the new tables up to the end of a window, if that is faster than page by page. Nil: it is not.
	Load func(context.Context, *feed.Feed) error

	Total int64 // positions; set by Run
}

// Mark is the mark in the cursor rows of a build: its version and shape and, while it is loaded, its progress.
type Mark struct {
	Version int        `json:"version"`
	Shape   string     `json:"shape"`
	Loaded  bool       `json:"loaded"` // up to the cursor; else up to After
	After   ledger.Key `json:"after,omitzero"`
	Done    int64      `json:"done"` // events

	// Tagged is whether tags are added. A build of an older version of the built-in projection leaves it out, and
	// begins again.
	Tagged bool `json:"tagged,omitempty"`
}

// Text returns the mark as JSON.
func (m Mark) Text() json.RawMessage {
	text, _ := json.Marshal(m) // strings and numbers
	return text
}

// Schema returns the schema in which tables are built that are to be in another schema.
func Schema(inUse string) string { return "taskledger_build_" + inUse }

// Builder returns the name of the reader that fills new tables of a reader. Events are parked under it meanwhile.
func Builder(reader string) string { return "rebuild/" + reader }

// LastPosition returns the last position of the ledger.
func LastPosition(ctx context.Context, db ledger.DB) (last int64, err error) {
	_, err = pgquery.Row(ctx, db, lastPositionSQL, nil, &last)
	return last, err
}

// Run builds the tables from the first event in a separate schema, and replaces the tables in use when they have caught
// up. It commits after each page. If it is killed, the next call continues, or begins again if the tables have changed.
//
// If several calls run at a time, one works and the others return [feed.ErrSuperseded]. So does a call while a program
// of a higher version builds its tables. Other errors: of the Target, [*VersionError], [*TablesError],
// [ledger.ErrNotMigrated].
func (b *Build) Run(ctx context.Context) (err error) {
	if b.Total, err = LastPosition(ctx, b.DB); err != nil {
		return pgerr.Explain("rebuild "+b.Name, err)
	}
	f, err := b.open(ctx)
	if err != nil {
		return err
	}
	if b.Load != nil && !b.Mark.Loaded {
		if err := b.Load(ctx, f); err != nil {
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
		mark := b.Mark
		err := b.swap(ctx, f)
		if err == nil {
			b.Options.Progress(b.Total, b.Total)
			fault.Point(fault.SwapDone)
			return nil
		}
		if !pgerr.Is(err, pgerr.LockNotAvailable, pgerr.DeadlockDetected) {
			return err
		}
		b.Mark = mark // the swap's mark was rolled back
		if f, err = b.openFeed(ctx); err != nil {
			return err
		}
		if err := f.Mark(ctx, b.DB, b.Mark.Text()); err != nil {
			return err
		}
		b.Options.Progress(min(b.Mark.Done, b.Total), b.Total)
		wait := backoff.Next()
		b.Options.Logger.WarnContext(ctx, "the tables are in use; the rebuild tries again", "retry_in", wait,
			"by", b.users(ctx))
		if err := loop.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (b *Build) openFeed(ctx context.Context) (*feed.Feed, error) {
	return feed.Open(ctx, b.DB, Builder(b.Reader), &feed.Options{
		PageSize: b.Options.PageSize, AuditEvery: -1, Archive: b.Archive,
	})
}

// open returns the feed of the build at the place that an earlier call has reached, or begins from the start. It does
// not touch a running build of a program with other tables, unless those have an older version.
func (b *Build) open(ctx context.Context) (*feed.Feed, error) {
	f, err := b.openFeed(ctx)
	if err != nil {
		return nil, err
	}
	var have Mark
	if mark := f.Cursor().Mark; json.Unmarshal(mark, &have) != nil {
		have = Mark{}
	}
	hasTables, err := CheckSchema(ctx, b.DB, b.Name, b.Schema)
	if err != nil {
		return nil, err
	}
	switch {
	case hasTables && have.Version == b.Mark.Version && have.Shape == b.Mark.Shape && have.Tagged == b.Mark.Tagged:
		b.Mark = have
		return f, nil
	case have.Version >= b.Mark.Version:
		if err := b.mustHaveStopped(ctx, have); err != nil {
			return nil, err
		}
	}
	b.Mark.Loaded, b.Mark.Done = b.Load == nil, 0
	err = pgx.BeginTxFunc(ctx, b.DB, pgquery.Brief, func(tx pgx.Tx) error {
		if err := f.Restart(ctx, tx, b.Mark.Text()); err != nil {
			return err
		}
		if err := DropSchema(ctx, tx, b.Schema); err != nil {
			return err
		}
		if err := b.Target.Clear(ctx, tx); err != nil {
			return err
		}
		return b.Target.Make(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	fault.Point(fault.BuildMade)
	return f, nil
}

// Stopped is the time without progress after which a program with other tables takes over a build.
var Stopped = time.Minute

// mustHaveStopped returns an error if the build of other tables is under way.
func (b *Build) mustHaveStopped(ctx context.Context, have Mark) error {
	var age int64
	found, err := pgquery.Row(ctx, b.DB, buildAgeSQL, []any{Builder(b.Reader)}, &age)
	if err == nil && found && time.Duration(age)*time.Microsecond < Stopped {
		err = fmt.Errorf("version %d is being built: %w", have.Version, feed.ErrSuperseded)
	}
	return pgerr.Explain("rebuild "+b.Name, err)
}

// catchUp applies pages until few events are left.
func (b *Build) catchUp(ctx context.Context, f *feed.Feed) error {
	for {
		page, ok, err := f.Poll(ctx)
		if err != nil || !ok {
			return err
		}
		b.Mark.Done += int64(len(page.Events))
		err = b.Target.ApplyPage(ctx, func(tx pgx.Tx) error {
			return page.Advance(ctx, tx, b.Mark.Text())
		}, page.Events)
		if err != nil {
			return err
		}
		fault.Point(fault.BuildBatch)
		b.Options.Progress(min(b.Mark.Done, b.Total), b.Total)
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
