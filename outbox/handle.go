package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/abandon"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// handlerError is the error of a subscriber's handler. It is retried whatever it is, because it need not be of the
// ledger.
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
	return fmt.Sprintf("handle the event at position %d (%s): %s; to pass it: taskledger subscriber seek %s "+
		"--position %[1]d", first.Position, first.ID(), e.err, e.subscriber)
}

func (e *handlerError) Unwrap() error { return e.err }

// Why a handler that has returned no error has failed.
var (
	// After a rollback the place was not kept.
	errEndedTx   = errors.New("Handle has ended the transaction, in which the place of the subscriber is kept")
	errAbortedTx = errors.New(
		"Handle has returned no error after a statement of it failed, which aborts the transaction")
	errLostTx = errors.New("Handle has returned no error after its connection was lost")
)

// The states of a transaction, as in PostgreSQL's ReadyForQuery.
const (
	txIdle    = 'I'
	txAborted = 'E'
)

// handleInTx handles events in the transaction that advances the cursor.
func (s *subscriber) handleInTx(ctx context.Context, page feed.Page, events []ledger.Event) error {
	options := pgx.TxOptions{
		BeginQuery: "begin isolation level read committed; savepoint taskledger_handle",
		// It fails in another transaction: "rollback and chain" in Handle would drop the cursor, and repeat the events.
		CommitQuery: "release savepoint taskledger_handle; commit",
	}
	return abandon.InTx(ctx, s.DB, options, func(tx pgx.Tx) error { return s.handleIn(ctx, tx, page, events) })
}

func (s *subscriber) handleIn(ctx context.Context, tx pgx.Tx, page feed.Page, events []ledger.Event) error {
	// The cursor comes first, so that another process with this page waits and is superseded before its handler.
	if err := page.Advance(ctx, tx, s.mark); err != nil {
		return err
	}
	if len(events) == 0 {
		return tx.Commit(ctx)
	}
	err := loop.Guard(func() error { return s.Handle(ctx, tx, events) })
	fault.Point(FaultHandled)
	switch conn := tx.Conn().PgConn(); {
	case err != nil:
	case conn.IsClosed():
		err = errLostTx
	case conn.TxStatus() == txIdle:
		err = errEndedTx
	case conn.TxStatus() == txAborted:
		err = errAbortedTx
	default:
		err = tx.Commit(ctx)
		if pgerr.Is(err, pgerr.InvalidSavepoint) {
			err = errEndedTx
			break
		}
		if pgerr.Code(err) == "" || pgerr.IsRetryable(err) {
			return err
		} // else a deferred constraint or trigger of the handler's tables has failed
	}
	if err != nil {
		err = &handlerError{s.Name, events, err}
	}
	return err
}
