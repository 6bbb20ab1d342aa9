package ledger

import (
	"bytes"
	"context"
	_ "embed" // the statements
	"strconv"
	"strings"

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

// textArray is an array literal: statements take arrays as plain text and cast them, so that
// they work in every query mode of pgx and through poolers.
type textArray struct {
	b     strings.Builder
	nulls int // at the end, not written yet
}

// grow makes room for n elements of so many bytes together.
func (a *textArray) grow(n, bytes int) { a.b.Grow(bytes + 4*n + 2) }

// special is what is escaped in an element.
const special = `"\`

// next begins another element.
func (a *textArray) next() {
	separator := byte(',')
	if a.b.Len() == 0 {
		separator = '{'
	}
	for ; a.nulls > 0; a.nulls-- {
		a.b.WriteByte(separator)
		a.b.WriteString("NULL")
		separator = ','
	}
	a.b.WriteByte(separator)
}

func (a *textArray) add(s string) {
	a.next()
	a.b.WriteByte('"')
	for i := strings.IndexAny(s, special); i >= 0; i = strings.IndexAny(s, special) {
		a.b.WriteString(s[:i])
		a.b.WriteByte('\\')
		a.b.WriteByte(s[i])
		s = s[i+1:]
	}
	a.b.WriteString(s)
	a.b.WriteByte('"')
}

// addBytes is addOptional without a copy.
func (a *textArray) addBytes(s []byte) {
	if len(s) == 0 {
		a.nulls++
		return
	}
	a.next()
	a.b.WriteByte('"')
	for i := bytes.IndexAny(s, special); i >= 0; i = bytes.IndexAny(s, special) {
		a.b.Write(s[:i])
		a.b.WriteByte('\\')
		a.b.WriteByte(s[i])
		s = s[i+1:]
	}
	a.b.Write(s)
	a.b.WriteByte('"')
}

func (a *textArray) addInt(n int64) {
	a.next()
	var digits [20]byte
	a.b.Write(strconv.AppendInt(digits[:0], n, 10))
}

// addOptional adds NULL for the empty string. The NULLs at the end are left out: unnest puts them
// where one of its arrays is shorter than the others.
func (a *textArray) addOptional(s string) {
	if s == "" {
		a.nulls++
		return
	}
	a.add(s)
}

// String ends the array: nothing may be added behind it.
func (a *textArray) String() string {
	if a.b.Len() == 0 {
		return "{}"
	}
	a.b.WriteByte('}')
	return a.b.String()
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
