package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

// The interval at which WaitFor polls.
const (
	firstPoll = 2 * time.Millisecond
	maxPoll   = 50 * time.Millisecond
)

// WaitFor waits until a projection has applied the event at a position, for example of a task that the caller has
// enqueued and committed. Then the projection's tables reflect it, for every transaction that begins afterwards. name
// is [TasksName] or the name of a user's projection. db is a pool or an idle connection to the primary. To read the
// state of one task, use [ledger.Load], which does not wait.
//
// It waits as long as no program runs the projection: give ctx a deadline. Errors: the error of ctx,
// [ledger.ErrUnknownPosition], [ErrUnknownProjection], [ledger.ErrNotMigrated].
func WaitFor(ctx context.Context, db ledger.DB, name string, p ledger.Position) error {
	if err := mustExist(ctx, db, name); err != nil {
		return err
	}
	for poll := firstPoll; ; poll = min(2*poll, maxPoll) {
		passed, found, err := feed.Passed(ctx, db, reader(name), p)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("%w: %d", ledger.ErrUnknownPosition, p)
		case passed:
			return nil
		}
		if err := loop.Sleep(ctx, poll); err != nil {
			return fmt.Errorf("wait for position %d in projection %s: %w", p, name, err)
		}
	}
}
