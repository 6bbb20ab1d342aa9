package feed

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/rebase_block.sql
	rebaseBlockSQL string
	//go:embed sql/rebase_patience.sql
	rebasePatienceSQL string
	//go:embed sql/rebase_unlock.sql
	rebaseUnlockSQL string
	//go:embed sql/rebase_lock.sql
	rebaseLockSQL string
	//go:embed sql/rebase_sequences.sql
	rebaseSequencesSQL string
	//go:embed sql/rebase_events.sql
	rebaseEventsSQL string
	//go:embed sql/rebase_cursors.sql
	rebaseCursorsSQL string
	//go:embed sql/rebase_moments.sql
	rebaseMomentsSQL string
)

// Crash points of package internal/fault.
const (
	FaultRebasePage = "rebase.page" // after a page of events is committed
	FaultRebaseEnd  = "rebase.end"  // before the last commit
)

// RebaseOptions are the options of [PlanRebase] and [Rebase]. Nil is the default of every field.
type RebaseOptions struct {
	// Readers are readers that may work, although they have no cursor yet.
	Readers []string
	// Progress is called with the position up to which events are read, and the last one. Default: disabled.
	Progress func(at, last ledger.Position)
	// Finish is called in the last transaction, which also puts the cursors before the first event. Default: disabled.
	Finish func(ctx context.Context, tx pgx.Tx, changed int64) error

	pageSize int // Default: rebasePage. Tests change it.
}

const (
	// rebasePage is how many events a transaction reads.
	rebasePage = 2_000
	// rebasePatience bounds how long producers wait behind the command, which itself waits for an open transaction.
	rebasePatience = time.Second
	// rebaseRetry is the delay until it tries again.
	rebaseRetry = 500 * time.Millisecond
)

func (o *RebaseOptions) withDefaults() RebaseOptions {
	var d RebaseOptions
	if o != nil {
		d = *o
	}
	if d.Progress == nil {
		d.Progress = func(_, _ ledger.Position) {}
	}
	if d.Finish == nil {
		d.Finish = func(context.Context, pgx.Tx, int64) error { return nil }
	}
	if d.pageSize <= 0 {
		d.pageSize = rebasePage
	}
	return d
}

// RebaseDB is a pgxpool.Pool or pgx.Conn.
type RebaseDB interface {
	ledger.DB
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Rebase makes events and cursors valid that were restored from a dump, or came by logical replication: their
// transaction ids are those of another database. The events get an id that is older than every window, and all readers
// begin again at the first event. It reports whether it was needed.
//
// Producers and workers may work meanwhile: their events are valid, and wait about as long as a page takes. Readers
// refuse to work until the end. Rebase commits after each page. If it is killed, readers still refuse, and it is to be
// called again; what it has done is not done again.
//
// Tables that a reader makes of the events are emptied in Finish. Errors: [*SubscribedError], [ErrNotPrimary],
// [ledger.ErrNotMigrated]. It needs the owner of the table event.
func Rebase(ctx context.Context, db RebaseDB, o *RebaseOptions) (bool, error) {
	options := o.withDefaults()
	plan, err := readRebasePlan(ctx, db)
	if err != nil || !plan.Needed {
		return false, err
	}
	if err := blockReaders(ctx, db, options.Readers); err != nil {
		return false, err
	}
	r := rebase{db: db, options: options}
	if err := r.patiently(ctx, r.advanceSequences); err != nil {
		return false, err
	}
	for !r.isDone {
		if err := r.patiently(ctx, r.page); err != nil {
			return false, err
		}
		fault.Point(FaultRebasePage)
		options.Progress(r.at, max(r.at, plan.Last))
	}
	return true, r.patiently(ctx, r.finish)
}

// blockReaders makes all readers refuse to work.
func blockReaders(ctx context.Context, db ledger.DB, more []string) error {
	var list pgarray.Builder
	for _, name := range more {
		list.Add(name)
	}
	readers := list.String()
	begin := Beginning()
	for {
		rows, err := db.Query(ctx, rebaseBlockSQL, readers, begin.Snapshot, int64(begin.Top), begin.Bound)
		if err != nil {
			return pgerr.Explain("stop the readers", err)
		}
		valid, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if pgerr.Is(err, pgerr.SerializationFailure) {
			continue // a reader has advanced
		}
		if err != nil {
			return pgerr.Explain("stop the readers", err)
		}
		if len(valid) == 0 {
			return nil
		}
	}
}

// rebase is a call of [Rebase].
type rebase struct {
	db      RebaseDB
	options RebaseOptions
	at      ledger.Position // the events up to here are done
	changed int64
	isDone  bool // no event lies after at
}

// patiently calls f in a transaction that may change events. It tries again while another transaction has a lock.
func (r *rebase) patiently(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	for {
		err := r.transact(ctx, f)
		if !pgerr.Is(err, pgerr.LockNotAvailable, pgerr.DeadlockDetected) {
			return pgerr.Explain("rebase", err)
		}
		if err := loop.Sleep(ctx, rebaseRetry); err != nil {
			return err
		}
	}
}

func (r *rebase) transact(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	// Each statement must see what has committed before it got the lock.
	tx, err := r.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
	if _, err := tx.Exec(ctx, rebasePatienceSQL, fmt.Sprint(rebasePatience.Milliseconds())); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, rebaseUnlockSQL); err != nil {
		return err
	}
	before := *r
	if err := f(ctx, tx); err != nil {
		*r = before
		return err
	}
	if _, err := tx.Exec(ctx, rebaseLockSQL); err != nil {
		*r = before
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		*r = before
		return err
	}
	return nil
}

func (r *rebase) advanceSequences(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, rebaseSequencesSQL)
	return err
}

// page changes the events of the next page.
func (r *rebase) page(ctx context.Context, tx pgx.Tx) error {
	var next, changed int64
	_, err := pgquery.Row(ctx, tx, rebaseEventsSQL, []any{int64(r.at), int64(r.options.pageSize)}, &next, &changed)
	if err != nil {
		return err
	}
	if r.isDone = next == 0; !r.isDone {
		r.at = ledger.Position(next)
	}
	r.changed += changed
	return nil
}

// finish changes the events that another program has restored meanwhile, and lets the readers begin.
func (r *rebase) finish(ctx context.Context, tx pgx.Tx) error {
	plan, err := readRebasePlan(ctx, tx)
	if err != nil || !plan.Needed {
		return err // another call has finished
	}
	for r.isDone = false; !r.isDone; {
		if err := r.page(ctx, tx); err != nil {
			return err
		}
	}
	begin := Beginning()
	if _, err := tx.Exec(ctx, rebaseCursorsSQL, begin.Snapshot, int64(begin.Top), begin.Bound); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, rebaseMomentsSQL); err != nil {
		return err
	}
	if err := r.options.Finish(ctx, tx, r.changed); err != nil {
		return err
	}
	fault.Point(FaultRebaseEnd)
	return nil
}
