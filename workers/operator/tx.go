package operator

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Tx changes tasks in a transaction of the caller: a business transaction that withdraws an order also cancels the
// order's tasks. Its methods are [Operator]'s methods for one task, with the same errors, but they do not commit.
// After an error the transaction can go on, unless the database has ended it.
//
// The login needs the role operator. The transaction must be READ COMMITTED, and should be short: another process that
// appends to the task waits for its end. No worker is notified. A worker that runs the task detects the change when it
// renews its lease, every third of its AckWait, or when the handler's transaction fails at the end.
type Tx struct{ tx pgx.Tx }

// In returns a [Tx] that changes tasks in a transaction.
func In(tx pgx.Tx) Tx { return Tx{tx} }

// Release is [Operator.Release] in the transaction.
func (t Tx) Release(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return t.one(ctx, k, action{event: ledger.EventReleased, audit: audit})
}

// Bury is [Operator.Bury] in the transaction.
func (t Tx) Bury(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return t.one(ctx, k, action{event: ledger.EventBuried, audit: audit})
}

// Cancel is [Operator.Cancel] in the transaction.
func (t Tx) Cancel(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return t.one(ctx, k, action{event: ledger.EventCancelled, audit: audit})
}

// Reschedule is [Operator.Reschedule] in the transaction.
func (t Tx) Reschedule(ctx context.Context, k ledger.Key, due Due, audit Audit) (ledger.Event, error) {
	return t.one(ctx, k, action{event: ledger.EventScheduled, due: due, audit: audit})
}

func (t Tx) one(ctx context.Context, k ledger.Key, a action) (ledger.Event, error) {
	return a.apply(ctx, t.tx, k)
}
