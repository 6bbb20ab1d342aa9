// Package pgquery runs statements that return at most one row, and passes parameters in the form that
// every query mode of pgx and every pooler accepts: plain strings and integers.
package pgquery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Querier is a pgx.Tx, *pgx.Conn or *pgxpool.Pool, or an adapter of them.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Row scans the first row of a statement and reports whether there was one. Errors are those of db.
func Row(ctx context.Context, db Querier, sql string, args []any, into ...any) (found bool, err error) {
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

// Optional returns s as a parameter: NULL if it is empty.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// JSON returns text as a parameter: NULL if it is nil.
func JSON(text []byte) *string {
	if text == nil {
		return nil
	}
	s := string(text)
	return &s
}

// Time returns t as a parameter that SQL casts to timestamptz: '-infinity' for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-infinity"
	}
	return t.UTC().Format(time.RFC3339Nano)
}
