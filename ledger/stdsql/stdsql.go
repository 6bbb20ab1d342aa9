// Package stdsql adapts database/sql to package ledger, so that its functions run on a *sql.Tx, *sql.DB or
// *sql.Conn, and on the transactions of libraries that are built on them.
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	_, err = ledger.Enqueue(ctx, stdsql.Wrap(tx), key, args, nil)
//	…
//	err = tx.Commit()
//
// Wrap accepts a *sqlx.Tx and a bun.Tx directly, because they embed a *sql.Tx. For GORM, wrap
// tx.Statement.ConnPool inside of db.Transaction.
//
// The driver must be one for PostgreSQL. The tests use the driver of pgx, github.com/jackc/pgx/v5/stdlib.
// Parameters are only strings, integers and NULL, and database/sql converts the results. So
// github.com/lib/pq should work as well, but it is not tested.
package stdsql

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/taskledger/taskledger/ledger"
)

// Querier is a transaction, a connection or a pool of database/sql. *sql.Tx, *sql.Conn, *sql.DB, *sqlx.Tx and
// gorm.ConnPool implement it.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Wrap returns a [ledger.DB] that runs its statements on q. If q is a transaction, they become part of it; the
// DB never commits it or rolls it back. The DB is as safe for concurrent use as q.
//
// If q is a struct that embeds a *sql.Tx or a *sql.Conn, the statements run on that. The methods of some libraries,
// such as bun, replace parameters by their own placeholders, so that $1 has no value. An embedded *sql.DB is not used,
// because the methods of q may run statements in a transaction: pass the DB field of a *bun.DB.
//
// Errors of other drivers are wrapped so that package ledger finds their SQLSTATE.
func Wrap(q Querier) ledger.DB {
	if inner := embedded(reflect.ValueOf(q)); inner != nil {
		q = inner
	}
	return db{q}
}

// embedded returns the *sql.Tx or *sql.Conn that v is or embeds, also within embedded structs, or nil.
func embedded(v reflect.Value) Querier {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		if v.CanInterface() {
			switch q := v.Interface().(type) {
			case *sql.Tx:
				return q
			case *sql.Conn:
				return q
			}
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous {
			if q := embedded(v.Field(i)); q != nil {
				return q
			}
		}
	}
	return nil
}

type db struct{ q Querier }

func (d db) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	// The caller closes the rows and checks their error.
	r, err := d.q.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the reader of the rows checks it
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

// rows is *sql.Rows as pgx.Rows. Properties that database/sql does not provide are empty: the connection, the
// types of columns, raw values, the command tag.
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

// stateError is the error of another driver and its SQLSTATE as a *pgconn.PgError.
type stateError struct {
	error
	pg *pgconn.PgError
}

func (e stateError) Unwrap() []error { return []error{e.error, e.pg} }

// withState returns err with its SQLSTATE as a *pgconn.PgError, which errors.As finds as in errors of pgx. The
// drivers for PostgreSQL have in common only a method that returns the SQLSTATE.
func withState(err error) error {
	var pg *pgconn.PgError
	var state interface{ SQLState() string }
	if err == nil || errors.As(err, &pg) || !errors.As(err, &state) {
		return err
	}
	return stateError{err, &pgconn.PgError{Code: state.SQLState(), Message: err.Error()}}
}
