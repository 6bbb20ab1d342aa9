package periodic

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/pause.sql
	pauseSQL string
	//go:embed sql/resume.sql
	resumeSQL string
	//go:embed sql/delete.sql
	deleteSQL string
)

// Pause stops the firings of a schedule until [Resume]. If the schedule is paused already, another reason replaces the
// old reason and its actor; no reason, or the same reason, changes nothing.
//
// The actor and the reason are recorded. The default actor is the database's session_user. It commits, unless db is a
// transaction. Errors: [ErrUnknownSchedule], [*ledger.InvalidError].
func Pause(ctx context.Context, db DB, name, actor, reason string) error {
	d := Difference{Name: name, Action: pause}
	return changeOne(ctx, db, d, actor, reason, func(tx pgx.Tx, s Status, _ time.Time) (bool, error) {
		if s.Paused && (reason == "" || reason == s.PauseReason) {
			return false, nil
		}
		_, err := tx.Exec(ctx, pauseSQL, name, optional(actor), reason)
		return true, err
	})
}

// Resume continues a paused schedule from now on. The firings that were due since [Pause] are recorded as one
// discarded task and do not run. Resuming a schedule that is not paused changes nothing. For actor, reason and errors
// see [Pause]. It commits, unless db is a transaction.
func Resume(ctx context.Context, db DB, name, actor, reason string) error {
	d := Difference{Name: name, Action: resume}
	return changeOne(ctx, db, d, actor, reason, func(tx pgx.Tx, s Status, now time.Time) (bool, error) {
		if !s.Paused {
			return false, nil
		}
		if err := passOverDue(ctx, tx, s, now, reasonPaused); err != nil {
			return false, err
		}
		_, err := tx.Exec(ctx, resumeSQL, name, optional(actor))
		return true, err
	})
}

// Remove deletes a schedule. Its tasks stay. For actor, reason and errors see [Pause]. It commits, unless db is a
// transaction.
func Remove(ctx context.Context, db DB, name, actor, reason string) error {
	d := Difference{Name: name, Action: Delete}
	return changeOne(ctx, db, d, actor, reason, func(tx pgx.Tx, _ Status, _ time.Time) (bool, error) {
		_, err := tx.Exec(ctx, deleteSQL, name)
		return true, err
	})
}

// changeOne calls change with a schedule, locked, and records d if change reports that it changed the schedule.
func changeOne(
	ctx context.Context, db DB, d Difference, actor, reason string,
	change func(pgx.Tx, Status, time.Time) (bool, error),
) error {
	operation := string(d.Action) + " schedule " + d.Name
	if err := checkReason(reason); err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return pgerr.Explain(operation, err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	s, now, err := lock(ctx, tx, d.Name)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("schedule %s: %w", d.Name, ErrUnknownSchedule)
	}
	changed, err := change(tx, *s, now)
	if err == nil && changed {
		err = record(ctx, tx, d, actor, reason, now)
	}
	if err != nil {
		return pgerr.Explain(operation, err)
	}
	return pgerr.Explain(operation, tx.Commit(ctx))
}

// RunNow enqueues a task of the schedule at once, even if it is paused, and returns the task. Its key ends in the time
// and "+manual": it is not a firing, and the position of the schedule does not change. For actor, reason and errors
// see [Pause]; it also returns the errors of [ledger.Enqueue]. It commits, unless db is a transaction.
func RunNow(ctx context.Context, db DB, name, actor, reason string) (task ledger.Enqueued, err error) {
	if err := ledger.Kind(name).Validate(); err != nil {
		return ledger.Enqueued{}, fmt.Errorf("schedule: %w", renamed(err, "name"))
	}
	d := Difference{Name: name, Action: run}
	err = changeOne(ctx, db, d, actor, reason, func(tx pgx.Tx, s Status, now time.Time) (bool, error) {
		key := firingKey(s.Schedule, now)
		key.BizID += "+manual"
		task, err = enqueue(ctx, tx, s.Schedule, key, actor, firingMeta{Name: name})
		return err == nil, err
	})
	if err != nil {
		return ledger.Enqueued{}, err
	}
	return task, nil
}
