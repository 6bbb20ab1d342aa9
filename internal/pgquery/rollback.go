package pgquery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// rollbackTimeout bounds a rollback, even after its context has ended: the server may hang.
const rollbackTimeout = 5 * time.Second

// Rollback rolls back a transaction, even if ctx is done. After the end of the transaction it does nothing. If the
// server does not answer, the connection is closed, and the server rolls back.
func Rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}
