package projector

import (
	"context"
	"fmt"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// WaitFor waits until the built-in projection has applied the event at a position, for example of a task that the
// caller has enqueued and committed. Then its tables reflect it, for every transaction that begins afterwards. db is a
// pool or an idle connection to the primary. To read the state of one task, use [ledger.Load], which does not wait.
//
// It waits as long as no program runs the projection: give ctx a deadline. Errors: the error of ctx,
// [ledger.ErrUnknownPosition], [ledger.ErrNotMigrated].
func WaitFor(ctx context.Context, db ledger.DB, p ledger.Position) error {
	if err := feed.AwaitPassed(ctx, db, feed.ProjectorReader, p); err != nil {
		return fmt.Errorf("wait for the projection: %w", err)
	}
	return nil
}
