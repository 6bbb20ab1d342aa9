package stdsql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// Package ledger tests that an enqueue by database/sql returns and writes the same as one by pgx.

func open(t *testing.T, roles ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", ledgertest.URL(t, roles...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestRows(t *testing.T) {
	t.Parallel()
	db := stdsql.Wrap(open(t))
	const sql = "select i::text as name, i as number, null as nothing from generate_series(1, $1::integer) i"
	rows, err := db.Query(t.Context(), sql, 2)
	if err != nil {
		t.Fatal(err)
	}
	if fields := rows.FieldDescriptions(); len(fields) != 3 || fields[1].Name != "number" {
		t.Errorf("fields %v", fields)
	}
	var got [][]any
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, values)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	want := [][]any{{"1", int64(1), nil}, {"2", int64(2), nil}}
	if diff := difference.Of(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rows.Close()
	rows.Close() // a second call is allowed
	if fields := rows.FieldDescriptions(); fields != nil {
		t.Errorf("fields of closed rows: %v", fields)
	}
}

func TestExecReturnsRowsAffected(t *testing.T) {
	t.Parallel()
	db := stdsql.Wrap(open(t))
	for want, statement := range []string{
		"create table t (i int)",
		"insert into t values (1)",
		"insert into t values (1), (2)",
	} {
		tag, err := db.Exec(t.Context(), statement)
		if err != nil || tag.RowsAffected() != int64(want) {
			t.Errorf("%s: %q, %v, want %d rows", statement, tag, err, want)
		}
	}
	rows, err := db.Query(t.Context(), "select i from t order by i")
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || len(numbers) != 3 {
		t.Errorf("pgx.CollectRows: %v, %v, want 3 rows", numbers, err)
	}
}

// otherDriver returns errors as a driver other than pgx does: they have only the SQLSTATE.
type otherDriver struct{ stdsql.Querier }

type otherError struct{ code, message string }

func (e *otherError) Error() string    { return e.message }
func (e *otherError) SQLState() string { return e.code }

func translate(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return fmt.Errorf("other: %w", &otherError{code: pg.Code, message: pg.Message})
	}
	return err
}

func (d otherDriver) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := d.Querier.QueryContext(ctx, query, args...)
	return rows, translate(err)
}

func (d otherDriver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := d.Querier.ExecContext(ctx, query, args...)
	return result, translate(err)
}

func TestErrorsOfOtherDriversHaveTheirSQLState(t *testing.T) {
	t.Parallel()
	db := open(t, ledgertest.Owner)
	if _, err := db.ExecContext(t.Context(), "drop schema taskledger, taskledger_internal cascade"); err != nil {
		t.Fatal(err)
	}
	wrapped := stdsql.Wrap(otherDriver{db})
	_, enqueueErr := ledger.Enqueue(t.Context(), wrapped, ledger.Key{Kind: "k", BizID: "1"}, nil, nil)
	_, execErr := wrapped.Exec(t.Context(), "select 1/0")
	for code, err := range map[string]error{"42P01": enqueueErr, "22012": execErr} {
		var pg *pgconn.PgError
		var other *otherError
		if !errors.As(err, &pg) || pg.Code != code {
			t.Errorf("%v: no SQLSTATE %s", err, code)
		}
		if !errors.As(err, &other) || other.code != code {
			t.Errorf("%v: the driver's error is not in the chain", err)
		}
	}
	if !errors.Is(enqueueErr, ledger.ErrNotMigrated) {
		t.Errorf("%v, want ErrNotMigrated", enqueueErr)
	}
}
