package projector

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
)

// explain wraps a database error with the operation; a missing schema becomes
// [ledger.ErrNotMigrated], which names its cure.
func explain(op string, err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "42P01", "3F000", "42883", "42704": // undefined table, schema, function, type
			return fmt.Errorf("%s: %w: %w", op, ledger.ErrNotMigrated, err)
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
