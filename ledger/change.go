package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

//go:embed sql/change.sql
var changeSQL string

// maxReasonBytes bounds the reason of a change.
const maxReasonBytes = 4096

// ChangeOptions are the optional properties of a change of a task. Nil means all defaults.
type ChangeOptions struct {
	// Actor is the author of the change. Default: the database's session_user.
	Actor string
	// Reason is stored in the event: at most 4 KiB of UTF-8 without NUL. Default: a text such as "cancelled by the
	// producer".
	Reason string
	// IfVersion is the version that the task must have; the append decides. At another version the change returns a
	// [*ConflictError], whatever the task's state. Default: any version.
	IfVersion Version
}

// Due is when a task is due: At, or In from now by the database's clock. At most one of them may be set. A time in the
// past means now.
type Due struct {
	At time.Time
	In time.Duration
	// Priority is the new priority of the task. Without At and In, the time does not change: a waiting task keeps its
	// due time, and an available task becomes available again, behind the other tasks of that priority. Default: the
	// task keeps its priority; At or In must be set.
	Priority Priority
}

// Cancel cancels an unfinished task in db's transaction: a business transaction that withdraws an order also cancels
// the order's tasks. It never commits.
//
// The attempt of a worker that runs the task cannot commit any more. The worker cancels the handler's context within
// moments, or when it next renews its lease. If the handler has finished first, the task has succeeded, and the error
// reports that state. Another process that appends to the task waits for the end of db's transaction: keep it short.
//
// A login with the role operator may change all tasks. A producer may change a task whose last run its login has
// enqueued, or another login whose member it is: `grant other_login to my_login`.
//
// Cancel and the other changes take one statement. Their errors: [ErrUnknownTask]; a [*TransitionError] with the task's
// state if the state does not allow the change, even if another process has just changed it; a [*ConflictError] with
// IfVersion; an [*InvalidError]. After these errors nothing was written, and the transaction stays usable. A
// transaction that is REPEATABLE READ or SERIALIZABLE and lost a race gets [ErrRetryTransaction]. The error for a task
// of another login has SQLSTATE 42501.
func Cancel(ctx context.Context, db DB, k Key, o *ChangeOptions) (Event, error) {
	return change(ctx, db, k, EventCancelled, Due{}, o)
}

// Release makes a task available: see [Cancel]. A dead, cancelled, expired or discarded task gets all its attempts
// again, with the same args, in the same run. A waiting task (scheduled, retrying) is brought forward. An available
// task is left as it is, with a [*TransitionError].
//
// A producer that releases a finished task while the [Limit] of its kind is reached gets an [*OverloadError], which
// aborts the transaction.
func Release(ctx context.Context, db DB, k Key, o *ChangeOptions) (Event, error) {
	return change(ctx, db, k, EventReleased, Due{}, o)
}

// Reschedule changes when a task is released, or its priority, if the task waits, or is available and has not started:
// see [Cancel]. A task that waits for its predecessors needs At or In.
func Reschedule(ctx context.Context, db DB, k Key, d Due, o *ChangeOptions) (Event, error) {
	return change(ctx, db, k, EventScheduled, d, o)
}

// Bury makes an unfinished task dead: no worker runs it until it is released. See [Cancel]; the login needs the role
// operator.
func Bury(ctx context.Context, db DB, k Key, o *ChangeOptions) (Event, error) {
	return change(ctx, db, k, EventBuried, Due{}, o)
}

// Validate returns an [*InvalidError] unless d contains a time or a priority.
func (d Due) Validate() error {
	if err := d.Priority.Validate(); err != nil {
		return err
	}
	switch {
	case d.IsInPlace():
		return nil
	case d.In < 0:
		return &InvalidError{Field: "in", Value: d.In.String(), Rule: "must not be negative"}
	case d.At.IsZero() == (d.In == 0):
		return &InvalidError{Field: "at", Rule: "exactly one of at and in must be given, or a priority"}
	}
	return checkTime("at", d.At)
}

// IsInPlace reports whether d changes the priority alone.
func (d Due) IsInPlace() bool { return d.Priority != 0 && d.At.IsZero() && d.In == 0 }

// validate returns an [*InvalidError] for the first rule that o breaks.
func (o *ChangeOptions) validate() error {
	rule := ""
	switch {
	case len(o.Reason) > maxReasonBytes:
		rule = fmt.Sprintf("must have at most %d bytes, got %d", maxReasonBytes, len(o.Reason))
	case !utf8.ValidString(o.Reason):
		rule = "must be valid UTF-8"
	case strings.Contains(o.Reason, "\x00"):
		rule = "must not contain the character NUL"
	case o.IfVersion < 0:
		version := strconv.Itoa(int(o.IfVersion))
		return &InvalidError{Field: "version", Value: version, Rule: "must not be negative"}
	default:
		return checkActor(o.Actor)
	}
	return &InvalidError{Field: "reason", Rule: rule}
}

// change appends one change of a task.
func change(ctx context.Context, db DB, k Key, t EventType, d Due, o *ChangeOptions) (Event, error) {
	if o == nil {
		o = &ChangeOptions{}
	}
	err := k.ValidateStored()
	if err == nil {
		err = o.validate()
	}
	if err == nil && t == EventScheduled {
		err = d.Validate()
	}
	if err != nil {
		return Event{}, fmt.Errorf("%s: %w", k, err)
	}
	var expected, priority any
	if o.IfVersion != 0 {
		expected = int64(o.IfVersion)
	}
	if d.Priority != 0 {
		priority = int64(d.Priority)
	}
	after, at := dueTime{d.In, d.At}.params()
	args := []any{
		string(k.Kind), string(k.BizID), string(t), expected, pgquery.Optional(o.Actor), pgquery.Optional(o.Reason),
		pgquery.Optional(after), pgquery.Optional(at), priority,
	}
	var outcome, state string
	var version int64
	var data *string
	e := Event{Key: k, Type: t, DataVersion: 1}
	targets := append([]any{&outcome, &state, &version}, append(e.scanTargets(), &data)...)
	_, err = pgquery.Row(ctx, db, changeSQL, args, targets...)
	if overload := raisedOverload(err); overload != nil {
		return Event{}, fmt.Errorf("%s: %w: %w", k, overload, err)
	}
	if err != nil {
		return Event{}, pgerr.Explain("change "+k.String(), err)
	}
	switch outcome {
	case "":
		e.setStored(data)
		return e, nil
	case "unknown":
		return Event{}, fmt.Errorf("%s: %w", k, ErrUnknownTask)
	case "state":
		return Event{}, &TransitionError{Key: k, Type: t, State: State(state)}
	case "time":
		rule := "or in must be given: the task has no due time"
		return Event{}, &InvalidError{Field: "at", Rule: rule}
	}
	return Event{}, &ConflictError{Key: k, Expected: o.IfVersion, Found: Version(version), State: State(state)}
}
