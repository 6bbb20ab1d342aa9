package projector

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Projection derives tables from events. A runner gives it every event once, those of a task in
// their order, and moves its cursor in the same transaction. The exception is a defect of ours:
// what the audit of the feed found missing comes late, and may bring events that came before, so
// an event that does not continue a task must be met by reading the task's history.
type Projection interface {
	// Name under which its cursor is kept: it never changes.
	Name() string
	// Version of its tables' meaning: a change asks for a rebuild.
	Version() int
	// Apply writes what the events change, in tx, which is READ COMMITTED. It must not commit,
	// roll back, or have effects outside of tx: an error, or a crash, undoes the page, and it is
	// applied again.
	Apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error
}
