package operator

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// Operator changes tasks and kinds, see the package comment. Each method of [Changer] for one task has a counterpart
// for all tasks that match a [Filter]. It is safe for concurrent use.
type Operator struct {
	Changer // commits each change
	db      *pgxpool.Pool
}

// New returns an operator that works on the primary. Its login needs the role operator.
func New(db *pgxpool.Pool) *Operator { return &Operator{Changer{db: db}, db} }

// Changer changes one task at a time: an [Operator], which commits each change, or [In] a transaction of the caller. It
// is safe for concurrent use, unless it is in a transaction.
type Changer struct {
	db      ledger.DB
	version ledger.Version // of the task; 0: any
}

// In returns the changes of tasks in a transaction of the caller: a business transaction that withdraws an order also
// cancels the order's tasks. It does not commit. After an error the transaction can go on, unless the database has
// ended it.
//
// The login needs the role operator. The transaction must be READ COMMITTED, and should be short: another process that
// appends to the task waits for its end. No worker is notified. A worker that runs the task detects the change when it
// renews its lease, every third of its AckWait, or when the handler's transaction fails at the end.
func In(tx pgx.Tx) Changer { return Changer{db: tx} }

// IfVersion returns the changes of a task at version v; the append decides. At another version they return a
// [*ledger.ConflictError], whatever the task's state.
func (c Changer) IfVersion(v ledger.Version) Changer { return Changer{c.db, v} }

// Audit is the author of a change and the reason for it. Both are stored in the event.
type Audit struct {
	Actor  string // Default: the database's session_user.
	Reason string // Default: a text such as "released by an operator". At most 4 KiB of UTF-8 without NUL.
}

// Due is when a task is due: At, or In from now by the database's clock. At most one of them may be set. A time in the
// past means now.
type Due struct {
	At time.Time
	In time.Duration
	// Priority is the new priority of the task. Without At and In, the time does not change: a waiting task keeps its
	// due time, and an available task becomes available again, behind the other tasks of that priority. Default: the
	// task keeps its priority; At or In must be set.
	Priority ledger.Priority
}

// Release makes a task available. A dead, cancelled, expired or discarded task gets all its attempts again. A
// waiting task (scheduled, retrying) is brought forward. An available task is left as it is.
//
// An [Operator] commits this and the other changes of one task. Their errors: [ledger.ErrUnknownTask];
// [*ledger.TransitionError] with the task's state if the state does not allow the change, even if another process has
// just changed it; [*ledger.InvalidError].
func (c Changer) Release(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return c.one(ctx, k, action{event: ledger.EventReleased, audit: audit})
}

// Bury makes an unfinished task dead: no worker runs it until it is released. If a handler is running, its
// context is cancelled, and its transaction is rolled back.
func (c Changer) Bury(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return c.one(ctx, k, action{event: ledger.EventBuried, audit: audit})
}

// Cancel cancels an unfinished task. If a handler is running, its context is cancelled within moments
// (workers.ErrCancelled), or at its worker's next renewal of the lease if the message is lost; its transaction is
// rolled back. If the handler has finished first, the task has succeeded, and the error reports that state.
func (c Changer) Cancel(ctx context.Context, k ledger.Key, audit Audit) (ledger.Event, error) {
	return c.one(ctx, k, action{event: ledger.EventCancelled, audit: audit})
}

// Reschedule changes when a task is released, or its priority, if the task waits, or is available and has not started.
// A task that waits for its predecessors needs At or In.
func (c Changer) Reschedule(ctx context.Context, k ledger.Key, due Due, audit Audit) (ledger.Event, error) {
	return c.one(ctx, k, action{event: ledger.EventScheduled, due: due, audit: audit})
}

// maxConflicts is how often a task may move on between reading its state and the append.
const maxConflicts = 20

func (c Changer) one(ctx context.Context, k ledger.Key, a action) (ledger.Event, error) {
	a.version = c.version
	return a.apply(ctx, c.db, k)
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
		if a.isInPlace() && task.State != ledger.StateAvailable && task.DueAt.IsZero() {
			rule := "or in must be given: the task has no due time"
			return ledger.Event{}, &ledger.InvalidError{Field: "at", Rule: rule}
		}
		request, err := a.keepTime(task).request(k, task.Version)
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
