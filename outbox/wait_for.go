package outbox

import (
	"context"
	"fmt"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

// WaitFor waits until a subscriber has handled the event at a position, for example of a task that the caller has
// enqueued and committed. Then its tables reflect it, for every transaction that begins afterwards. db is a pool or an
// idle connection to the primary. To read the state of one task, use [ledger.Load], which does not wait.
//
// It waits as long as no program works as the subscriber: give ctx a deadline. Errors: the error of ctx,
// [ledger.ErrUnknownPosition], [ErrUnknownSubscriber], [ledger.ErrNotMigrated].
func WaitFor(ctx context.Context, db ledger.DB, name string, p ledger.Position) error {
	reader, err := subscribers.Reader(ctx, db, name)
	if err != nil {
		return err
	}
	if err := feed.AwaitPassed(ctx, db, reader, p); err != nil {
		return fmt.Errorf("wait for subscriber %s: %w", name, err)
	}
	return nil
}
