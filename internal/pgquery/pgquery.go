// Package pgquery runs statements that return at most one row, and passes parameters in the form that
// every query mode of pgx and every pooler accepts: plain strings and integers.
package pgquery

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Querier is a pgx.Tx, *pgx.Conn or *pgxpool.Pool, or an adapter of them.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Row scans the first row of a statement and reports whether there was one. It returns the errors of db.
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

// Micros returns a destination of a scan that stores a time in t, in UTC: the zero time for NULL. A statement returns
// a time as microseconds since 1970:
//
//	(extract(epoch from recorded_at) * 1e6)::bigint
//
// The text of a timestamptz depends on DateStyle, which a role or a database may set. In some query modes, and with
// some drivers, results are text, and times in other styles cannot be read.
func Micros(t *time.Time) sql.Scanner { return &micros{t} }

type micros struct{ t *time.Time }

// Scan accepts a time as well, of a query that the user has written.
func (m *micros) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*m.t = time.Time{}
	case int64:
		*m.t = time.UnixMicro(value).UTC()
	case time.Time:
		*m.t = value.UTC()
	default:
		return fmt.Errorf("invalid time: %T", value)
	}
	return nil
}

// ScanInt64 is Scan for pgx. It allocates nothing.
func (m *micros) ScanInt64(value pgtype.Int8) error {
	if !value.Valid {
		return m.Scan(nil)
	}
	*m.t = time.UnixMicro(value.Int64).UTC()
	return nil
}

// Time returns t as a parameter that SQL casts to timestamptz: '-infinity' for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-infinity"
	}
	return t.UTC().Format(time.RFC3339Nano)
}
