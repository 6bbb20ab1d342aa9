// Package stdsql lets the calls of package ledger run on database/sql: on a *sql.Tx, *sql.DB
// or *sql.Conn, and on the transactions of libraries that are built on them.
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	_, err = ledger.Enqueue(ctx, stdsql.Wrap(tx), key, args, nil)
//	…
//	err = tx.Commit()
//
// A *sqlx.Tx can be wrapped as it is, since it embeds a *sql.Tx. Of GORM, wrap the
// tx.Statement.ConnPool inside of db.Transaction.
//
// The driver must speak PostgreSQL. Tested is pgx's own (github.com/jackc/pgx/v5/stdlib).
// Parameters are strings, integers and NULL only, and results are read by the conversions of
// database/sql, so that github.com/lib/pq should work as well; it is not tested.
package stdsql

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/taskledger/taskledger/ledger"
)

// Querier is what is needed of a transaction, a connection or a pool: *sql.Tx, *sql.Conn,
// *sql.DB, *sqlx.Tx and gorm.ConnPool are such.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Wrap returns q in the form that package ledger takes. What runs on it becomes part of q's
// transaction, if q is one; it never commits and never rolls back. It is as safe for concurrent
// use as q is.
func Wrap(q Querier) ledger.DB { return db{q} }

type db struct{ q Querier }

func (d db) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	// The rows are handed on; whoever reads them closes them and asks for their error.
	r, err := d.q.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the reader of the rows asks for their error
	if err != nil {
		return nil, withState(err)
	}
	return rows{r}, nil
}

func (d db) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	result, err := d.q.ExecContext(ctx, query, args...)
	if err != nil {
		return pgconn.CommandTag{}, withState(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return pgconn.CommandTag{}, withState(err)
	}
	return pgconn.NewCommandTag("ROWS " + strconv.FormatInt(n, 10)), nil
}

// rows is *sql.Rows as pgx.Rows. What database/sql does not know is empty: the connection, the
// types of columns, raw values, the command's name.
type rows struct{ r *sql.Rows }

func (r rows) Next() bool             { return r.r.Next() }
func (r rows) Scan(into ...any) error { return withState(r.r.Scan(into...)) }
func (r rows) Err() error             { return withState(r.r.Err()) }

// Close reports its error through Err, as pgx does.
func (r rows) Close() { _ = r.r.Close() }

func (r rows) Values() ([]any, error) {
	names, err := r.r.Columns()
	if err != nil {
		return nil, withState(err)
	}
	values, into := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	return values, r.Scan(into...)
}

func (r rows) FieldDescriptions() []pgconn.FieldDescription {
	names, err := r.r.Columns()
	if err != nil {
		return nil // the rows are closed
	}
	fields := make([]pgconn.FieldDescription, len(names))
	for i, name := range names {
		fields[i].Name = name
	}
	return fields
}

func (rows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }
func (rows) RawValues() [][]byte           { return nil }
func (rows) Conn() *pgx.Conn               { return nil }
func (rows) TypeMap() *pgtype.Map          { return nil }

// stateError is another driver's error, with its SQLSTATE where package ledger looks for it.
type stateError struct {
	error
	pg *pgconn.PgError
}

func (e stateError) Unwrap() []error { return []error{e.error, e.pg} }

// withState lets err be understood as pgx's own errors are: drivers agree only on a method
// that tells the SQLSTATE.
func withState(err error) error {
	var pg *pgconn.PgError
	var state interface{ SQLState() string }
	if err == nil || errors.As(err, &pg) || !errors.As(err, &state) {
		return err
	}
	return stateError{err, &pgconn.PgError{Code: state.SQLState(), Message: err.Error()}}
}
