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

// optional is NULL for the empty string.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// nullable is NULL for no JSON.
func nullable(text []byte) *string {
	if text == nil {
		return nil
	}
	s := string(text)
	return &s
}

// queryRow scans the first row of a statement and reports whether there was one.
func queryRow(ctx context.Context, db DB, sql string, args []any, into ...any) (bool, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	if !rows.Next() {
		return false, rows.Err()
	}
	if err := rows.Scan(into...); err != nil {
		return false, err
	}
	rows.Close()
	return true, rows.Err()
}
