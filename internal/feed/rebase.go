package feed

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/rebase_guard.sql
	rebaseGuardSQL string
	//go:embed sql/rebase_needed.sql
	rebaseNeededSQL string
	//go:embed sql/rebase_patience.sql
	rebasePatienceSQL string
	//go:embed sql/rebase_lock.sql
	rebaseLockSQL string
	//go:embed sql/rebase_sequences.sql
	rebaseSequencesSQL string
	//go:embed sql/rebase_floor.sql
	rebaseFloorSQL string
	//go:embed sql/rebase_cursors.sql
	rebaseCursorsSQL string
	//go:embed sql/rebase_moments.sql
	rebaseMomentsSQL string
)

// RebasePlan is the work of [Rebase] before it is done.
type RebasePlan struct {
	// Needed: a cursor, or an event, contains transaction ids of another database.
	Needed  bool            `json:"needed"`
	Readers []string        `json:"readers"` // readers with cursors of another database
	Last    ledger.Position `json:"last_position"`
	// SequenceBehind: enqueues fail, because the sequence of positions is behind the last event. Without Needed,
	// Rebase mends only this: no event is delivered again.
	SequenceBehind bool `json:"sequence_behind"`
}

// RebaseOptions are the options of [Rebase]. Nil is the default of every field.
type RebaseOptions struct {
	// Finish is called in the transaction that moves the cursors, if they are moved. Default: disabled.
	Finish func(ctx context.Context, tx pgx.Tx) error
}

const (
	// rebasePatience bounds how long producers wait for the command, which itself waits for an open transaction.
	rebasePatience = time.Second
	// rebaseRetry is the delay until it tries again.
	rebaseRetry = 500 * time.Millisecond
)

// RebaseDB is a pgxpool.Pool or pgx.Conn.
type RebaseDB interface {
	ledger.DB
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// SubscribedError is the error of a database into which a subscription still writes events.
type SubscribedError struct{ Subscription string }

func (e *SubscribedError) Error() string {
	return fmt.Sprintf("subscription %q still replicates events into this database: disable it or drop it first",
		e.Subscription)
}

// Rebase makes events and cursors valid that were restored from a dump, or came by logical replication: their
// transaction ids belong to another database. It raises the floor, up to which transaction ids have no meaning, to the
// last event, and the services begin again at the first event.
//
// A subscriber whose cursor was restored continues. It gets every event that it had not passed, and again the events
// that were recorded after the first of these. Rebase changes no event, and its cost does not grow with their number.
// It reports whether it was needed. If only the sequence of positions is behind, it advances only the sequence.
//
// Producers and workers may continue meanwhile: they wait until the transaction of Rebase ends. Rebase waits for open
// transactions that have written events, and tries again each second so that others do not wait longer.
//
// Empty the tables that a reader derives from the events in Finish. Rebase commits at its end, all or nothing. Errors:
// [*SubscribedError], [ErrNotPrimary], [ledger.ErrNotMigrated]. It needs the owner of the table event.
func Rebase(ctx context.Context, db RebaseDB, o *RebaseOptions) (bool, error) {
	if o == nil {
		o = &RebaseOptions{}
	}
	for {
		needed, err := tryRebase(ctx, db, o)
		if !pgerr.Is(err, pgerr.LockNotAvailable, pgerr.DeadlockDetected) {
			return needed, pgerr.Explain("rebase", err)
		}
		if err := loop.Sleep(ctx, rebaseRetry); err != nil {
			return false, err
		}
	}
}

func tryRebase(ctx context.Context, db RebaseDB, o *RebaseOptions) (needed bool, err error) {
	plan, err := PlanRebase(ctx, db)
	if err != nil || !plan.Needed && !plan.SequenceBehind {
		return false, err
	}
	// Each statement must see everything that was committed before it got the lock.
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return false, err
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	if _, err := tx.Exec(ctx, rebasePatienceSQL, fmt.Sprint(rebasePatience.Milliseconds())); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, rebaseLockSQL); err != nil {
		return false, err
	}
	if plan, err = PlanRebase(ctx, tx); err != nil || !plan.Needed && !plan.SequenceBehind {
		return false, err // another call has finished
	}
	if _, err := tx.Exec(ctx, rebaseSequencesSQL); err != nil {
		return false, err
	}
	if !plan.Needed {
		return true, tx.Commit(ctx)
	}
	begin := Beginning()
	if _, err := tx.Exec(ctx, rebaseCursorsSQL, begin.Snapshot, int64(begin.Top), begin.Bound); err != nil {
		return false, err
	}
	for _, sql := range []string{rebaseFloorSQL, rebaseMomentsSQL} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return false, err
		}
	}
	if o.Finish != nil {
		if err := o.Finish(ctx, tx); err != nil {
			return false, err
		}
	}
	fault.Point(fault.RebaseEnd)
	return true, tx.Commit(ctx)
}

// PlanRebase returns the work of [Rebase], and changes nothing. It returns the errors of Rebase.
func PlanRebase(ctx context.Context, db ledger.DB) (plan RebasePlan, err error) {
	var standby, isForeign bool
	var subscription, readers string
	if _, err := pgquery.Row(ctx, db, rebaseGuardSQL, nil, &standby, &subscription); err != nil {
		return plan, pgerr.Explain("look for subscriptions", err)
	}
	switch {
	case standby:
		return plan, ErrNotPrimary
	case subscription != "":
		return plan, &SubscribedError{Subscription: subscription}
	}
	_, err = pgquery.Row(ctx, db, rebaseNeededSQL, nil,
		&readers, &isForeign, (*int64)(&plan.Last), &plan.SequenceBehind)
	if err != nil {
		return plan, pgerr.Explain("look for cursors of another database", err)
	}
	if err := json.Unmarshal([]byte(readers), &plan.Readers); err != nil {
		return plan, err
	}
	plan.Needed = isForeign || len(plan.Readers) > 0
	return plan, nil
}
