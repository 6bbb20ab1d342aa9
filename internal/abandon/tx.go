package abandon

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
)

// InTx calls f with a transaction of a pool, in a goroutine of its own. f commits; otherwise the transaction is rolled
// back.
//
// InTx returns [loop.ErrAbandoned] if all that takes longer than [loop.Grace] after ctx is done: because a function of
// a user that f calls ignores ctx, or because the server does not answer. Other errors are those of f and of beginning.
func InTx(ctx context.Context, db *pgxpool.Pool, o pgx.TxOptions, f func(tx pgx.Tx) error) error {
	conn, err := Acquire(ctx, db)
	if err != nil {
		return err
	}
	err = loop.Bound(ctx, loop.Grace, func() error {
		defer conn.Release()
		tx, err := conn.Conn().BeginTx(ctx, o)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
		return f(tx)
	})
	if errors.Is(err, loop.ErrAbandoned) {
		conn.Abandon()
	}
	return err
}
