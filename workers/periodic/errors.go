package periodic

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
)

// ErrUnknownSchedule: no schedule has this name.
var ErrUnknownSchedule = errors.New("unknown schedule")

// errConnectionEnded says that a schedule is not at fault.
var errConnectionEnded = errors.New("the connection has ended")

// explain wraps a database error with the operation, and with the error that names the cure where
// there is one: [ledger.ErrUnavailable], [ledger.ErrNotMigrated].
func explain(op string, err error) error {
	if err == nil {
		return nil
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w: %w", op, ledger.ErrUnavailable, err)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "42P01", "3F000", "42883", "42704", "42703": // undefined table, schema, function, type, column
			return fmt.Errorf("%s: %w: %w", op, ledger.ErrNotMigrated, err)
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
