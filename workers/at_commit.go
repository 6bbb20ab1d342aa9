package workers

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// AtCommit adds a statement to the end of a handler's transaction. It is executed after the handler has returned nil
// and after all statements sent before, in the round trip that records the success and commits. A task whose handler
// runs one such statement takes one round trip instead of two.
//
// Use it if the handler needs neither rows nor their number. AtCommit itself sends nothing and returns nil. If the
// statement fails, nothing is committed and the attempt fails with its error, as if the handler had returned that; if
// the handler returns an error, the statement is not executed. It is one statement and must not end the transaction:
// see [ledger.Tx.AtCommit].
//
// In a savepoint, or in the transaction of a [Caller], which commits later, the statement is executed at once, and
// AtCommit returns its error. So the handler must always return AtCommit's error.
func AtCommit(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	if t, ok := tx.(*attempt.Tx); ok && t.AtCommit(sql, args...) {
		return nil
	}
	_, err := tx.Exec(ctx, sql, args...)
	return err
}
