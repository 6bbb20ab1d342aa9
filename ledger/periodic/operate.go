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

// Pause stops the firings of a schedule until [Resume]. Pausing a paused schedule changes nothing.
// Default of actor: the database's session_user. It returns [ErrUnknownSchedule].
func Pause(ctx context.Context, db DB, name, actor string) error {
	return setPaused(ctx, db, name, true, actor)
}

// Resume continues a paused schedule from now on. The firings that were due since [Pause] are recorded as one
// discarded task and do not run. Resuming a schedule that is not paused changes nothing.
// Default of actor: the database's session_user. It returns [ErrUnknownSchedule].
func Resume(ctx context.Context, db DB, name, actor string) error {
	return setPaused(ctx, db, name, false, actor)
}

func setPaused(ctx context.Context, db DB, name string, paused bool, actor string) error {
	d := Difference{Name: name, Action: resume}
	if paused {
		d.Action = pause
	}
	return changeOne(ctx, db, d, actor, func(tx pgx.Tx, s Status, now time.Time) (bool, error) {
		if s.Paused == paused {
			return false, nil
		}
		if s.Paused {
			if err := passOverDue(ctx, tx, s, now, ReasonPaused); err != nil {
				return false, err
			}
		}
		_, err := tx.Exec(ctx, pauseSQL, name, fmt.Sprint(paused), optional(actor))
		return true, err
	})
}

// Remove deletes a schedule. Its tasks stay.
// Default of actor: the database's session_user. It returns [ErrUnknownSchedule].
func Remove(ctx context.Context, db DB, name, actor string) error {
	d := Difference{Name: name, Action: Delete}
	return changeOne(ctx, db, d, actor, func(tx pgx.Tx, _ Status, _ time.Time) (bool, error) {
		_, err := tx.Exec(ctx, deleteSQL, name)
		return true, err
	})
}

// changeOne calls change with a schedule, locked, and records d if change reports that it changed the schedule.
func changeOne(
	ctx context.Context, db DB, d Difference, actor string, change func(pgx.Tx, Status, time.Time) (bool, error),
) error {
	operation := string(d.Action) + " schedule " + d.Name
	tx, err := db.Begin(ctx)
	if err != nil {
		return pgerr.Explain(operation, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
	s, now, err := lock(ctx, tx, d.Name)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("schedule %s: %w", d.Name, ErrUnknownSchedule)
	}
	changed, err := change(tx, *s, now)
	if err == nil && changed {
		err = record(ctx, tx, d, actor, now)
	}
	if err != nil {
		return pgerr.Explain(operation, err)
	}
	return pgerr.Explain(operation, tx.Commit(ctx))
}

// RunNow enqueues a task of the schedule at once, also if it is paused, and returns it. Its key ends in the
// time and "+manual": it is not a firing, and the position of the schedule does not change.
// Default of actor: the database's session_user. It returns [ErrUnknownSchedule].
func RunNow(ctx context.Context, db ledger.DB, name, actor string) (ledger.Enqueued, error) {
	s, now, err := load(ctx, db, name)
	if err != nil {
		return ledger.Enqueued{}, err
	}
	key := firingKey(s.Schedule, now)
	key.BizID += "+manual"
	return enqueue(ctx, db, s.Schedule, key, actor, firingMeta{Name: name})
}
