package ledger

import (
	"context"
	_ "embed" // the statements

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB runs the statements of a call: a pgx.Tx, *pgx.Conn or *pgxpool.Pool, or a *sql.Tx wrapped by
// ledger/stdsql. On a transaction, a call becomes part of it and neither commits it nor rolls it back.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
