package alarm

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
)

// explain wraps a database error with the operation, and with the error that names the cure where
// there is one: [ledger.ErrUnavailable], [ledger.ErrNotMigrated].
func explain(op string, err error) error {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &connect) && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w: %w", op, ledger.ErrUnavailable, err)
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000" || pg.Code == "42703"): // no such table, schema, column
		return fmt.Errorf("%s: %w: %w", op, ledger.ErrNotMigrated, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// queryOne returns the value that a statement answers, zero if it answers no row.
func queryOne[T any](ctx context.Context, db ledger.DB, sql string, args ...any) (v T, err error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return v, err
	}
	v, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return v, nil
	}
	return v, err
}

// moved reports whether an append failed because somebody else appended first.
func moved(err error) bool {
	var conflict *ledger.ConflictError
	var transition *ledger.TransitionError
	return errors.As(err, &conflict) || errors.As(err, &transition)
}
