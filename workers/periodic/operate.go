package periodic

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/taskledger/taskledger/internal/dberror"
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
func Pause(ctx context.Context, db ledger.DB, name, actor string) error {
	return pause(ctx, db, name, true, actor)
}

// Resume has a paused schedule go on from now: the slots that were due in the meantime are
// recorded as one discarded task and do not fire. Resuming one that is not paused changes nothing.
// An empty actor is the database's session_user. It returns [ErrUnknownSchedule].
func Resume(ctx context.Context, db DB, name, actor string) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return dberror.Explain("resume schedule "+name, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
	s, now, err := hold(ctx, tx, name)
	if err != nil {
		return err
	}
	if s != nil && s.Paused {
		if err := passOverDue(ctx, tx, *s, now, ReasonPaused); err != nil {
			return err
		}
	}
	if err := pause(ctx, tx, name, false, actor); err != nil {
		return err
	}
	return dberror.Explain("resume schedule "+name, tx.Commit(ctx))
}

func pause(ctx context.Context, db ledger.DB, name string, paused bool, actor string) error {
	rows, err := db.Query(ctx, pauseSQL, name, fmt.Sprint(paused), optional(actor))
	if err != nil {
		return dberror.Explain("pause schedule "+name, err)
	}
	defer rows.Close()
	var exists bool
	for rows.Next() {
		if err := rows.Scan(&exists); err != nil {
			return dberror.Explain("pause schedule "+name, err)
		}
	}
	if err := rows.Err(); err != nil {
		return dberror.Explain("pause schedule "+name, err)
	}
	if !exists {
		return fmt.Errorf("schedule %s: %w", name, ErrUnknownSchedule)
	}
	return nil
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

// Remove deletes a schedule. Its tasks stay. It returns [ErrUnknownSchedule].
func Remove(ctx context.Context, db ledger.DB, name string) error {
	tag, err := db.Exec(ctx, deleteSQL, name)
	if err != nil {
		return dberror.Explain("delete schedule "+name, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("schedule %s: %w", name, ErrUnknownSchedule)
	}
	return nil
}
