package ledger

import (
	"context"
	_ "embed" // the statements

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is where a call runs: a pgx.Tx, *pgx.Conn or *pgxpool.Pool, or a *sql.Tx wrapped by
// ledger/stdsql. A call on a transaction becomes part of it; none of the calls in this
// package commits or rolls back a transaction it was given.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
