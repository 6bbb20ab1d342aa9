package operator

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// Operator changes tasks and kinds, see the package comment. It commits each change. Each method for one task has a
// counterpart for all tasks that match a [Filter]; in a transaction of its own, a program calls [ledger.Cancel] and the
// like. It is safe for concurrent use.
type Operator struct{ db *pgxpool.Pool }

// New returns an operator that works on the primary. Its login needs the role operator.
func New(db *pgxpool.Pool) *Operator { return &Operator{db} }

// Audit is the author of a change and the reason for it. Both are stored in the event.
type Audit struct {
	Actor  string // Default: the database's session_user.
	Reason string // Default: a text such as "released by an operator". At most 4 KiB of UTF-8 without NUL.
}

// options returns the options of the change of one task.
func (a Audit) options() *ledger.ChangeOptions {
	return &ledger.ChangeOptions{Actor: a.Actor, Reason: a.Reason}
}

// Release makes a task available: see [ledger.Release].
func (o *Operator) Release(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return ledger.Release(ctx, o.db, k, audit.options())
}

// Bury makes an unfinished task dead: see [ledger.Bury].
func (o *Operator) Bury(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return ledger.Bury(ctx, o.db, k, audit.options())
}

// Cancel cancels an unfinished task: see [ledger.Cancel].
func (o *Operator) Cancel(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return ledger.Cancel(ctx, o.db, k, audit.options())
}

// Reschedule changes when a task is released, or its priority: see [ledger.Reschedule].
func (o *Operator) Reschedule(ctx context.Context, k ledger.Key, d ledger.Due, audit Audit) (ledger.Event, error) {
	return ledger.Reschedule(ctx, o.db, k, d, audit.options())
}

// maxConflicts is how often a task may move on between the search that has found it and the append.
const maxConflicts = 20
