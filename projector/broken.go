package projector

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
)

var (
	//go:embed sql/transaction_id.sql
	transactionIDSQL string
	//go:embed sql/transaction_committed.sql
	transactionCommittedSQL string
)

// brokenError reports that Apply has ended the transaction of a page or left rows open in it, which makes it useless,
// or that the connection was lost in Apply.
type brokenError struct {
	reason string
	xid    string // of the transaction
	isLost bool   // the connection; otherwise Apply has broken the transaction, and may have ended it by SQL
	err    error  // of Apply, or nil
}

func (e *brokenError) Error() string {
	if e.err != nil {
		return e.reason + ": " + e.err.Error()
	}
	return e.reason
}

// Unwrap returns the error of Apply.
func (e *brokenError) Unwrap() error { return e.err }

var errAborted = errors.New("Apply has returned no error after a statement of it failed, which aborts the transaction")

// The states of a transaction, as in PostgreSQL's ReadyForQuery.
const (
	isIdle    = 'I'
	isAborted = 'E'
)

// checkTransaction returns the error of Apply, or the fault of the transaction after Apply. xid was its id.
func checkTransaction(ctx context.Context, tx pgx.Tx, xid string, failure error) error {
	conn := tx.Conn().PgConn()
	switch {
	case conn.IsClosed() && ctx.Err() == nil:
		return &brokenError{reason: "the connection was lost in Apply", xid: xid, isLost: true, err: failure}
	case conn.IsClosed():
		return failure
	case conn.IsBusy():
		return &brokenError{
			reason: "Apply has returned with open rows of its transaction: close them", xid: xid, err: failure,
		}
	case conn.TxStatus() == isAborted && failure == nil:
		return errAborted
	case conn.TxStatus() == isAborted:
		return failure
	}
	now := ""
	if conn.TxStatus() != isIdle {
		if _, err := pgquery.Row(ctx, tx, transactionIDSQL, nil, &now); err != nil {
			return errors.Join(failure, pgerr.Explain("apply", err))
		}
	}
	if now != xid {
		return &brokenError{
			reason: "Apply has ended the transaction of its page by SQL: remove COMMIT and ROLLBACK from it", xid: xid,
			err: failure,
		}
	}
	return failure
}

// breaks is part of the interface target.
func (t *ownTables) breaks(ctx context.Context, broken *brokenError) error {
	if broken.isLost || t.invalidate == nil {
		return nil
	}
	var isCommitted bool
	_, err := pgquery.Row(ctx, t.db, transactionCommittedSQL, []any{broken.xid}, &isCommitted)
	if err == nil && !isCommitted {
		return nil
	}
	if err == nil {
		err = t.invalidate(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w; the tables may contain a part of a page, rebuild them: %w", broken, err)
	}
	return fmt.Errorf("%w; the tables contain a part of a page, and are rebuilt from the first event", broken)
}

// invalidate makes the tables in use invalid, so that they are rebuilt.
func (o *own) invalidate(ctx context.Context) error { return rebuild.Invalidate(ctx, o.db, o.Name) }
