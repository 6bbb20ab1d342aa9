package projector

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Projection derives tables from events. A runner gives it every event once, those of a task in their order,
// and advances its cursor in the same transaction.
//
// There is one exception. An event that the audit of the feed found missing comes late, and events that came
// before may come again with it. For an event that does not continue a task, read the task's history.
type Projection interface {
	// Name returns the name under which its cursor is kept. It never changes.
	Name() string
	// Version returns the version of its tables. A new version requires a rebuild.
	Version() int
	// Apply writes the changes of the events in tx, which is READ COMMITTED. It must not commit, roll back,
	// or have effects outside of tx. An error or a crash undoes the page, and the page is applied again.
	Apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error
}
