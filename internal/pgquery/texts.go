package pgquery

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Texts returns the column of texts that a statement selects. It returns the errors of db.
func Texts(ctx context.Context, db Querier, sql string, args ...any) ([]string, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// ExecAll executes the statements that a query returns as texts.
func ExecAll(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	statements, err := Texts(ctx, tx, sql, args...)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
