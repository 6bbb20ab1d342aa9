package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/abandon"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// handlerError is the error of a subscriber's handler. Any such error is retried, because the ledger need not be its
// cause.
type handlerError struct {
	subscriber string
	events     []ledger.Event // that it got
	err        error
}

func (e *handlerError) Error() string {
	first := e.events[0]
	if n := len(e.events); n > 1 {
		return fmt.Sprintf("handle %d events, the first at position %d (%s): %s", n, first.Position, first.ID(), e.err)
	}
	return fmt.Sprintf("handle the event at position %d (%s): %s; to pass it: taskledger seek subscriber %s "+
		"--position %[1]d", first.Position, first.ID(), e.err, e.subscriber)
}

func (e *handlerError) Unwrap() error { return e.err }

// Why a handler that has returned no error has failed.
var (
	// After a rollback the place was not kept.
	errEndedTx   = errors.New("Handle has ended the transaction, in which the place of the subscriber is kept")
	errAbortedTx = errors.New(
		"Handle has returned no error after a statement of it failed, which aborts the transaction")
	errLostTx   = errors.New("Handle has returned no error after its connection was lost")
	errOpenRows = errors.New("Handle has returned with open rows of its transaction: close them")
)

// txAborted is the state of a transaction that cannot be committed, in PostgreSQL's ReadyForQuery.
const txAborted = 'E'

// handleInTx handles events in the transaction that advances the cursor. The handler's settings of its session end with
// it, because the connection is used for other pages.
func (s *subscriber) handleInTx(ctx context.Context, page feed.Page, events []ledger.Event) error {
	return abandon.WithConn(ctx, s.DB, func(conn *pgx.Conn) error { return s.handleOn(ctx, conn, page, events) })
}

func (s *subscriber) handleOn(ctx context.Context, conn *pgx.Conn, page feed.Page, events []ledger.Event) error {
	tx := ledger.BeginOn(ctx, conn, &ledger.TxOptions{Guard: true, ResetSession: true})
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	// The cursor comes first, so that another process with this page waits and is superseded before its handler.
	if err := page.Advance(ctx, tx, s.mark); err != nil {
		return err
	}
	if len(events) == 0 {
		return tx.Commit(ctx)
	}
	upcast, err := s.Upcasts.All(events)
	if err == nil {
		err = loop.Guard(func() error { return s.Handle(ctx, tx, upcast) })
	}
	fault.Point(fault.SubscriberHandled)
	if err == nil {
		if err = checkHandled(ctx, conn, tx); err == nil {
			err = tx.Commit(ctx)
		}
		if isOfDatabase(err) {
			return err
		} // else a deferred constraint or trigger of the handler's tables has failed
	}
	if err != nil {
		err = &handlerError{s.Name, events, err}
	}
	return err
}

// checkHandled returns why a transaction cannot be committed although its handler has returned no error.
func checkHandled(ctx context.Context, conn *pgx.Conn, tx *ledger.Tx) error {
	switch {
	case conn.IsClosed():
		return errLostTx
	case conn.PgConn().IsBusy():
		return errOpenRows
	case conn.PgConn().TxStatus() == txAborted:
		return errAbortedTx
	}
	isOpen, err := tx.IsOpen(ctx)
	if err == nil && !isOpen {
		err = errEndedTx
	}
	return err
}

// isOfDatabase reports whether the server or its connection failed at the end of a transaction, and not the handler.
func isOfDatabase(err error) bool {
	isOfHandler := func(fault error) bool { return errors.Is(err, fault) }
	if err == nil || slices.ContainsFunc([]error{errLostTx, errOpenRows, errAbortedTx, errEndedTx}, isOfHandler) {
		return false
	}
	return pgerr.Code(err) == "" || pgerr.IsRetryable(err)
}
