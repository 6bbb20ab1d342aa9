package outbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/abandon"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

// transact handles events in a transaction whose first step is advance. If they cannot be handled together, it handles
// them one after the other to find the failing event: it returns a [*HandleError], or parks the event. It does so even
// for an event whose Handle ends the transaction or loses its connection.
func (h *handling) transact(
	ctx context.Context, db *pgxpool.Pool, advance func(pgx.Tx) error, events []ledger.Event,
) error {
	err := h.inTransaction(ctx, db, advance, func(tx pgx.Tx) error {
		if err := h.apply(ctx, tx, events); err != nil {
			return &HandleError{Subscriber: h.Name, Err: err}
		}
		return nil
	})
	var failure *HandleError
	if !errors.As(err, &failure) {
		return err
	}
	var broken *brokenError
	isBroken := errors.As(failure.Err, &broken)
	if ctx.Err() != nil || !isBroken && rebuild.IsOutage(failure.Err) {
		return failure.Err
	}
	if isBroken {
		if err := h.breaks(ctx, db, broken); err != nil {
			return &HandleError{Subscriber: h.Name, Event: events[0], Err: err}
		}
	}
	return h.transactEach(ctx, db, advance, events)
}

// maxLost is the number of times that the connection is lost in Handle of an event before the event is the cause.
const maxLost = 2

// transactEach is transact that handles one event after the other.
func (h *handling) transactEach(
	ctx context.Context, db *pgxpool.Pool, advance func(pgx.Tx) error, events []ledger.Event,
) error {
	breaking := make(map[ledger.Position]error)
	lost := 0
	for {
		err := h.inTransaction(ctx, db, advance, func(tx pgx.Tx) error {
			return h.applyEach(ctx, tx, events, breaking)
		})
		var failure *HandleError
		var broken *brokenError
		if ctx.Err() != nil || !errors.As(err, &failure) || !errors.As(failure.Err, &broken) ||
			breaking[failure.Event.Position] != nil {
			return err
		}
		if err := h.breaks(ctx, db, broken); err != nil {
			return &HandleError{Subscriber: h.Name, Event: failure.Event, Err: err}
		}
		if lost++; !broken.isLost || lost >= maxLost {
			breaking[failure.Event.Position], lost = failure.Err, 0
		}
	}
}

func (h *handling) inTransaction(
	ctx context.Context, db *pgxpool.Pool, advance func(pgx.Tx) error, apply func(pgx.Tx) error,
) error {
	return h.inPage(ctx, db, func(tx pgx.Tx) error {
		if err := advance(tx); err != nil {
			return err
		}
		if err := apply(tx); err != nil {
			return err
		}
		fault.Point(fault.SubscriberHandled)
		return nil
	})
}

// inPage calls f in the transaction of a page, and commits it. It returns [loop.ErrAbandoned] if f has not returned in
// time after ctx is done, because a Handle may ignore ctx.
func (h *handling) inPage(ctx context.Context, db *pgxpool.Pool, f func(pgx.Tx) error) error {
	return abandon.WithConn(ctx, db, func(conn *pgx.Conn) error {
		tx := h.begin(ctx, conn)
		defer pgquery.Rollback(ctx, tx) // no effect after the commit
		if err := f(tx); err != nil {
			return err
		}
		return pgerr.Explain("commit", tx.Commit(ctx))
	})
}

// applyEach handles events one after the other, except events that are known to break the transaction. If a different
// event breaks it, the transaction is useless.
func (h *handling) applyEach(
	ctx context.Context, tx pgx.Tx, events []ledger.Event, breaking map[ledger.Position]error,
) error {
	for _, e := range events {
		failure := breaking[e.Position]
		if failure == nil {
			failure = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
				return h.apply(ctx, savepoint, []ledger.Event{e})
			})
			var broken *brokenError
			switch {
			case failure == nil:
				continue
			case ctx.Err() != nil:
				return failure
			case errors.As(failure, &broken):
				return &HandleError{Subscriber: h.Name, Event: e, Err: failure}
			case rebuild.IsOutage(failure):
				return failure
			}
		}
		parked, err := h.park(ctx, tx, e, failure)
		if err != nil {
			return err
		}
		if !parked {
			return &HandleError{Subscriber: h.Name, Event: e, Err: failure}
		}
	}
	return nil
}
