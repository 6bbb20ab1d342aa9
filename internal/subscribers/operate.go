package subscribers

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

// Seek moves a subscriber and records the act; it creates a missing subscriber. A process that works as the
// subscriber notices at its next page. A subscriber with tables is not moved, which would make them wrong. It
// commits. Default of actor: the database's session_user.
//
// Errors: [*ledger.InvalidError]; [ledger.ErrUnknownPosition] for a position without an event; [ErrBusy].
func Seek(ctx context.Context, db DB, name string, to feed.Start, actor, reason string) error {
	o := operation.Operation{Action: operation.SeekSubscriber, Actor: actor, Reason: reason}
	o.Detail = map[string]string{"subscriber": name, "to": to.String()}
	return operate(ctx, db, o, func(tx pgx.Tx) error { return feed.Seek(ctx, tx, name, to) })
}

// Pause stops a subscriber, or lets it continue, and records the act. It commits. Default of actor: the
// database's session_user.
//
// Errors: [ErrUnknown], [*ledger.InvalidError], [ErrBusy].
func Pause(ctx context.Context, db DB, name string, isPaused bool, actor, reason string) error {
	o := operation.Operation{Action: operation.PauseSubscriber, Actor: actor, Reason: reason}
	if !isPaused {
		o.Action = operation.ResumeSubscriber
	}
	o.Detail = map[string]string{"subscriber": name}
	return operate(ctx, db, o, func(tx pgx.Tx) error {
		found, err := feed.Pause(ctx, tx, name, isPaused)
		return existing(name, found, err)
	})
}

// Give gives a subscriber to another login, leaves its place, and records the act. It commits. Default of
// actor and errors: as in [Pause].
func Give(ctx context.Context, db DB, name, login, actor, reason string) error {
	o := operation.Operation{Action: operation.GiveSubscriber, Actor: actor, Reason: reason}
	o.Detail = map[string]string{"subscriber": name, "login": login}
	return operate(ctx, db, o, func(tx pgx.Tx) error {
		found, err := feed.Give(ctx, tx, name, login)
		return existing(name, found, err)
	})
}

// Remove removes a subscriber, whose processes end with outbox.ErrSubscriberRemoved, and records the act. Its tables
// stay: drop their schema before the name is used again. It commits. Default of actor and errors: as in [Pause].
func Remove(ctx context.Context, db DB, name, actor, reason string) error {
	o := operation.Operation{Action: operation.DeleteSubscriber, Actor: actor, Reason: reason}
	o.Detail = map[string]string{"subscriber": name}
	return operate(ctx, db, o, func(tx pgx.Tx) error {
		found, err := feed.Remove(ctx, tx, name)
		return existing(name, found, err)
	})
}

func existing(name string, found bool, err error) error {
	if err == nil && !found {
		err = fmt.Errorf("subscriber %s: %w", name, ErrUnknown)
	}
	return err
}

// operate executes and records an act in one transaction. The act comes first, because the place of a subscriber is
// read before the transaction writes.
func operate(ctx context.Context, db DB, o operation.Operation, act func(pgx.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return pgerr.Explain(o.Action, err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	if err := act(tx); err != nil {
		return err
	}
	if err := operation.Record(ctx, tx, o); err != nil {
		return err
	}
	return pgerr.Explain(o.Action, tx.Commit(ctx))
}
