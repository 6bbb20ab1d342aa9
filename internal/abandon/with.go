package abandon

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
)

// WithConn calls f with a connection of a pool, in a goroutine of its own.
//
// It returns [loop.ErrAbandoned] if f takes longer than [loop.Grace] after ctx is done. The cause is a user's function
// that ignores ctx, or a server that does not answer. It also returns the errors of f and of the pool.
func WithConn(ctx context.Context, db *pgxpool.Pool, f func(conn *pgx.Conn) error) error {
	conn, err := Acquire(ctx, db)
	if err != nil {
		return err
	}
	err = loop.Bound(ctx, loop.Grace, func() error {
		defer conn.Release()
		return f(conn.Conn())
	})
	if errors.Is(err, loop.ErrAbandoned) {
		conn.Abandon()
	}
	return err
}
