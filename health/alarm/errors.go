package alarm

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

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
