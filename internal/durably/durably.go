// Package durably commits changes that are acknowledged: to a client of the API, to an operator, on a terminal.
package durably

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// Do calls act in a transaction, and commits if act returns nil. The commit waits for the disk, whatever
// synchronous_commit is. Do returns the errors of act, of [ledger.Begin] and of the commit.
func Do(ctx context.Context, pool *pgxpool.Pool, act func(tx *ledger.Tx) error) error {
	tx, err := ledger.Begin(ctx, pool, &ledger.TxOptions{Durable: true})
	if err != nil {
		return err
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	if err := act(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
