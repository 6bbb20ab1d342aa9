package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/transaction_id.sql
	transactionIDSQL string
	//go:embed sql/transaction_committed.sql
	transactionCommittedSQL string
)

// brokenError reports that Handle has ended the transaction of a page or left rows open in it, which makes it useless,
// or that the connection was lost in Handle.
type brokenError struct {
	reason string
	xid    string // of the transaction
	isLost bool   // the connection; otherwise Handle has broken the transaction, and may have ended it by SQL
	err    error  // of Handle, or nil
}

func (e *brokenError) Error() string {
	if e.err != nil {
		return e.reason + ": " + e.err.Error()
	}
	return e.reason
}

// Unwrap returns the error of Handle.
func (e *brokenError) Unwrap() error { return e.err }

// txIdle is the state of a connection without a transaction, in PostgreSQL's ReadyForQuery.
const txIdle = 'I'

// checkTransaction returns the error of Handle, or the fault of the transaction after Handle. xid was its id.
func checkTransaction(ctx context.Context, tx pgx.Tx, xid string, failure error) error {
	conn := tx.Conn().PgConn()
	switch {
	case conn.IsClosed() && ctx.Err() == nil:
		return &brokenError{reason: "the connection was lost in Handle", xid: xid, isLost: true, err: failure}
	case conn.IsClosed():
		return failure
	case conn.IsBusy():
		return &brokenError{
			reason: "Handle has returned with open rows of its transaction: close them", xid: xid, err: failure,
		}
	case conn.TxStatus() == txAborted && failure == nil:
		return errAbortedTx
	case conn.TxStatus() == txAborted:
		return failure
	}
	now := ""
	if conn.TxStatus() != txIdle {
		var err error
		if now, err = readTransactionID(ctx, tx); err != nil {
			return errors.Join(failure, err)
		}
	}
	if now != xid {
		return &brokenError{
			reason: "Handle has ended the transaction of its page by SQL: remove COMMIT and ROLLBACK from it", xid: xid,
			err: failure,
		}
	}
	return failure
}

// breaks is called after an event has broken its transaction. If that was committed, the tables are invalid from then
// on, and breaks returns an error that describes it.
func (h *handling) breaks(ctx context.Context, db ledger.DB, broken *brokenError) error {
	if broken.isLost || h.invalidate == nil {
		return nil
	}
	var isCommitted bool
	_, err := pgquery.Row(ctx, db, transactionCommittedSQL, []any{broken.xid}, &isCommitted)
	if err == nil && !isCommitted {
		return nil
	}
	if err == nil {
		err = h.invalidate(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w; the tables may contain a part of a page, rebuild them: %w", broken, err)
	}
	return fmt.Errorf("%w; the tables contain a part of a page, and are rebuilt from the first event", broken)
}

// readTransactionID returns the id of a transaction, "" if it has none.
func readTransactionID(ctx context.Context, tx pgx.Tx) (xid string, err error) {
	_, err = pgquery.Row(ctx, tx, transactionIDSQL, nil, &xid)
	return xid, pgerr.Explain("read the transaction's id", err)
}
