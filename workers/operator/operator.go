package operator

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// Operator changes tasks and kinds, see the package comment. Each method for one task has a counterpart for all tasks
// that match a [Filter]. It is safe for concurrent use.
type Operator struct{ db *pgxpool.Pool }

// New returns an operator that works on the primary. Its login needs the role operator.
func New(db *pgxpool.Pool) *Operator { return &Operator{db} }

// Audit is the author of a change and the reason for it. Both are stored in the event.
type Audit struct {
	Actor  string // Default: the database's session_user.
	Reason string // Default: a text such as "released by an operator". At most 4 KiB of UTF-8 without NUL.
}

// Due is when a task is due: At, or In from now by the database's clock. Exactly one of them must be set. A time
// in the past means now.
type Due struct {
	At time.Time
	In time.Duration
}

// Release makes a task available. A dead, cancelled, expired or discarded task gets all its attempts again. A
// waiting task (scheduled, retrying) is brought forward. An available task is left as it is.
//
// This and the other methods for one task commit. Their errors: [ledger.ErrUnknownTask]; [*ledger.TransitionError]
// with the task's state if the state does not allow the change, even if another process has just changed it;
// [*ledger.InvalidError].
func (o *Operator) Release(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return o.one(ctx, k, action{event: ledger.EventReleased, audit: audit})
}

// Bury makes an unfinished task dead: no worker runs it until it is released. If a handler is running, its
// context is cancelled, and its transaction is rolled back.
func (o *Operator) Bury(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return o.one(ctx, k, action{event: ledger.EventBuried, audit: audit})
}

// Cancel cancels an unfinished task. If a handler is running, its context is cancelled within moments
// (workers.ErrCancelled), or at its worker's next renewal of the lease if the message is lost; its transaction is
// rolled back. If the handler has finished first, the task has succeeded, and the error reports that state.
func (o *Operator) Cancel(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return o.one(ctx, k, action{event: ledger.EventCancelled, audit: audit})
}

// Reschedule changes when a task is released, if the task waits, or is available and has not started.
func (o *Operator) Reschedule(ctx context.Context, k ledger.Key, due Due, audit Audit) (ledger.Event, error) {
	return o.one(ctx, k, action{event: ledger.EventScheduled, due: due, audit: audit})
}

// Versioned changes one task if it is at a version, see [Operator.IfVersion].
type Versioned struct {
	operator *Operator
	version  ledger.Version
}

// IfVersion returns the changes of a task at version v; the append decides. At another version they return a
// [*ledger.ConflictError], whatever the task's state. For their other errors see [Operator.Release].
func (o *Operator) IfVersion(v ledger.Version) Versioned { return Versioned{o, v} }

// Release is [Operator.Release] of a task at the version.
func (c Versioned) Release(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return c.operator.one(ctx, k, action{event: ledger.EventReleased, audit: audit, version: c.version})
}

// Bury is [Operator.Bury] of a task at the version.
func (c Versioned) Bury(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return c.operator.one(ctx, k, action{event: ledger.EventBuried, audit: audit, version: c.version})
}

// Cancel is [Operator.Cancel] of a task at the version.
func (c Versioned) Cancel(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return c.operator.one(ctx, k, action{event: ledger.EventCancelled, audit: audit, version: c.version})
}

// Reschedule is [Operator.Reschedule] of a task at the version.
func (c Versioned) Reschedule(ctx context.Context, k ledger.Key, due Due, audit Audit) (ledger.Event, error) {
	return c.operator.one(ctx, k, action{event: ledger.EventScheduled, due: due, audit: audit, version: c.version})
}

// maxConflicts is how often a task may move on between reading its state and the append.
const maxConflicts = 20

func (o *Operator) one(ctx context.Context, k ledger.Key, a action) (ledger.Event, error) {
	return a.apply(ctx, o.db, k)
}

// apply applies an action to one task. After a conflict it tries again if the task's new state, and its version, allow
// the action.
func (a action) apply(ctx context.Context, db ledger.DB, k ledger.Key) (ledger.Event, error) {
	if err := a.validate(); err != nil {
		return ledger.Event{}, err
	}
	for conflicts := 1; ; conflicts++ {
		task, err := ledger.Load(ctx, db, k)
		if err != nil {
			return ledger.Event{}, err
		}
		if a.version != 0 && a.version != task.Version {
			return ledger.Event{}, &ledger.ConflictError{
				Key: k, Expected: a.version, Found: task.Version, State: task.State,
			}
		}
		if !slices.Contains(a.states(), task.State) {
			return ledger.Event{}, &ledger.TransitionError{Key: k, Type: a.event, State: task.State}
		}
		request, err := a.request(k, task.Version)
		if err != nil {
			return ledger.Event{}, err
		}
		e, err := ledger.Append(ctx, db, request)
		if err == nil {
			return e, nil
		}
		if !ledger.IsConflict(err) || conflicts == maxConflicts {
			return ledger.Event{}, err
		}
	}
}
