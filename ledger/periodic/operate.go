package periodic

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/pause.sql
	pauseSQL string
	//go:embed sql/delete.sql
	deleteSQL string
)

// Pause keeps a schedule from firing until [Resume]. Pausing a paused one changes nothing. An
// empty actor is the database's session_user. It returns [ErrUnknownSchedule].
func Pause(ctx context.Context, db DB, name, actor string) error {
	return pause(ctx, db, name, true, actor)
}

// Resume has a paused schedule go on from now: the slots that were due in the meantime are
// recorded as one discarded task and do not fire. Resuming one that is not paused changes nothing.
// An empty actor is the database's session_user. It returns [ErrUnknownSchedule].
func Resume(ctx context.Context, db DB, name, actor string) error {
	return pause(ctx, db, name, false, actor)
}

func pause(ctx context.Context, db DB, name string, pausing bool, actor string) error {
	d := Difference{Name: name, Action: resumed}
	if pausing {
		d.Action = paused
	}
	return changeOne(ctx, db, d, actor, func(tx pgx.Tx, s Status, now time.Time) (bool, error) {
		if s.Paused == pausing {
			return false, nil
		}
		if s.Paused {
			if err := passOverDue(ctx, tx, s, now, ReasonPaused); err != nil {
				return false, err
			}
		}
		_, err := tx.Exec(ctx, pauseSQL, name, fmt.Sprint(pausing), optional(actor))
		return true, err
	})
}

// Remove deletes a schedule. Its tasks stay. An empty actor is the database's session_user. It
// returns [ErrUnknownSchedule].
func Remove(ctx context.Context, db DB, name, actor string) error {
	return changeOne(ctx, db, Difference{Name: name, Action: Delete}, actor, func(tx pgx.Tx, _ Status, _ time.Time) (bool, error) {
		_, err := tx.Exec(ctx, deleteSQL, name)
		return true, err
	})
}

// changeOne does something to a schedule, and records it if do reports that it changed something.
func changeOne(ctx context.Context, db DB, d Difference, actor string, do func(pgx.Tx, Status, time.Time) (bool, error)) error {
	what := string(d.Action) + " schedule " + d.Name
	tx, err := db.Begin(ctx)
	if err != nil {
		return pgerr.Explain(what, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
	s, now, err := hold(ctx, tx, d.Name)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("schedule %s: %w", d.Name, ErrUnknownSchedule)
	}
	changed, err := do(tx, *s, now)
	if err == nil && changed {
		err = record(ctx, tx, d, actor, now)
	}
	if err != nil {
		return pgerr.Explain(what, err)
	}
	return pgerr.Explain(what, tx.Commit(ctx))
}

// RunNow enqueues a task of the schedule at once, paused or not, and answers it. Its key ends in
// the time and "+manual", so that it is no slot: what the schedule does next does not change.
// An empty actor is the database's session_user. It returns [ErrUnknownSchedule].
func RunNow(ctx context.Context, db ledger.DB, name, actor string) (ledger.Enqueued, error) {
	s, now, err := load(ctx, db, name)
	if err != nil {
		return ledger.Enqueued{}, err
	}
	key := slotKey(s.Schedule, now)
	key.BizID += "+manual"
	return enqueue(ctx, db, s.Schedule, key, actor, slotMeta{Name: name})
}
