// Package dberror gives errors of the database the name of their cure, the same one wherever they
// come up: package ledger has names for them, and does so for its own statements.
package dberror

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
)

// Explain wraps an error with the operation, and with the error that names the cure where there is
// one: [ledger.ErrUnavailable], [ledger.ErrNotMigrated]. It returns nil for nil.
func Explain(op string, err error) error {
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &connect) && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w: %w", op, ledger.ErrUnavailable, err)
	case NotMigrated(err):
		return fmt.Errorf("%s: %w: %w", op, ledger.ErrNotMigrated, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// NotMigrated reports whether the database lacks what a statement of ours names.
func NotMigrated(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "42P01", "3F000", "42883", "42704", "42703": // undefined table, schema, function, type, column
		return true
	}
	return false
}
