package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// Sentinel errors; compare with errors.Is.
var (
	// ErrUnknownTask means that no task has this key.
	ErrUnknownTask = errors.New("the task does not exist")
	// ErrUnknownPosition means that no event has this position.
	ErrUnknownPosition = errors.New("no event has this position")
	// ErrNotMigrated means that schema taskledger is missing or older than this program.
	ErrNotMigrated = pgerr.ErrNotMigrated
	// ErrUnavailable means that no connection could be made, so nothing was sent.
	ErrUnavailable = pgerr.ErrUnavailable
	// ErrRetryTransaction means that the caller's REPEATABLE READ or SERIALIZABLE transaction conflicts with a
	// concurrent transaction: it cannot see a task that exists, or PostgreSQL reports a serialization failure. Roll
	// back and run the whole transaction again.
	ErrRetryTransaction = pgerr.ErrRetryTransaction
	// ErrTransactionEnded means that code in the transaction ended it by COMMIT or ROLLBACK in SQL, or removed the
	// mark of [TxOptions].Guard by RESET ALL. The writes before that may be committed.
	ErrTransactionEnded = errors.New("the transaction was ended by COMMIT or ROLLBACK in SQL, " +
		"or RESET ALL removed its mark: RESET each setting by its name")
	// ErrTransactionAborted means that a statement in the transaction failed and its error was ignored, so
	// that the transaction cannot commit. Nothing was committed.
	ErrTransactionAborted = errors.New("the transaction was aborted by a statement whose error was swallowed")
)

// InvalidError is the error for invalid input. Nothing was written.
type InvalidError struct {
	Field string // kind, biz_id, args, …
	Value string // the invalid value, "" if it is empty or too long to show
	Rule  string // the rule that Value breaks, such as "must not be empty"
}

// Error returns "invalid <Field> <Value>: <Rule>", with at most 80 bytes of Value.
func (e *InvalidError) Error() string {
	if e.Value == "" {
		return "invalid " + e.Field + ": " + e.Rule
	}
	value := e.Value
	if len(value) > 80 {
		value = value[:80] + "…"
	}
	return "invalid " + e.Field + " " + strconv.QuoteToASCII(value) + ": " + e.Rule
}

// ConflictError is the error of an append whose task is not at the expected version: another process has
// appended an event. Nothing was written.
type ConflictError struct {
	Key      Key
	Expected Version
	Found    Version // of the task's last event
	State    State   // of the task
}

// Error returns the key, both versions and the state.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict on %s: expected version %d, found %d (%s)", e.Key, e.Expected, e.Found, e.State)
}

// TransitionError is the error of an append whose event type may not follow the state of the task.
// Nothing was written.
type TransitionError struct {
	Key   Key
	Type  EventType
	State State // of the task
}

// Error returns the key, the type and the state.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("%s cannot be %s: it is %s", e.Key, e.Type, e.State)
}

// IllegalError is the error of [Fold] for an event that cannot follow the events before it: the ledger was tampered
// with or is read out of order.
type IllegalError struct {
	Event  Event
	State  State // of the task before the event
	Reason string
}

// Error returns the event, the state and the reason.
func (e *IllegalError) Error() string {
	return fmt.Sprintf("illegal event %s %s after state %q: %s", e.Event.ID(), e.Event.Type, e.State, e.Reason)
}

// TaskError is the error of a task that has not succeeded. If a wait returns it, the task is dead, cancelled, expired
// or discarded.
type TaskError struct{ Task Task }

// Error returns the key, the state, the reason and the last error.
func (e *TaskError) Error() string {
	text := e.Task.Key.String() + " is " + string(e.Task.State)
	if e.Task.Reason != "" {
		text += ": " + e.Task.Reason
	}
	switch {
	case e.Task.Error == "":
		return text
	case e.Task.State == StateDead:
		return text + ": " + e.Task.Error
	}
	return text + ", last error: " + e.Task.Error
}

// WaitTimeoutError is the error of a wait whose time has passed. The tasks run on.
type WaitTimeoutError struct {
	Key        Key   // the first task that has not finished
	State      State // of that task, or StateNone if it was not read
	Unfinished int   // number of tasks that have not finished
}

// Error returns the number of tasks, the key and the state.
func (e *WaitTimeoutError) Error() string {
	text := fmt.Sprintf("time is up before %s has finished", e.Key)
	if e.State != StateNone {
		text += ": it is " + string(e.State)
	}
	if e.Unfinished > 1 {
		text += fmt.Sprintf(" (and %d other tasks)", e.Unfinished-1)
	}
	return text
}

// Unwrap returns [context.DeadlineExceeded].
func (e *WaitTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// OtherArgsError is the error of an enqueue whose task exists with other args. Nothing was written for the task, and
// the transaction stays usable; [Tx.EnqueueAndCommit] rolls back. [IfExistsIgnore] disables it.
type OtherArgsError struct {
	Existing Enqueued // the existing task; of [EnqueueMany] the first one in the order of the entries
	More     int      // number of further entries whose tasks exist with other args
}

// Error returns the key, the difference if it is known, the state and the version.
func (e *OtherArgsError) Error() string {
	t := e.Existing
	text := t.Key.String() + " exists with other args: "
	if t.Difference != "" {
		text += t.Difference + "; "
	}
	text += fmt.Sprintf("it is %s, at version %d", t.State, t.Version)
	if e.More > 0 {
		text += fmt.Sprintf(" (and %d other tasks)", e.More)
	}
	return text
}

// CorruptError is the error for stored bytes that do not decode.
type CorruptError struct {
	What string // meta, base64 payload, …
	Err  error
}

// Error returns What and the cause.
func (e *CorruptError) Error() string { return "corrupt " + e.What + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// IsConflict reports whether err is a [*ConflictError], a [*TransitionError] or [ErrUnknownTask]: the append
// failed because the task is not as the caller expected. Nothing was written.
func IsConflict(err error) bool {
	var conflict *ConflictError
	var transition *TransitionError
	return errors.As(err, &conflict) || errors.As(err, &transition) || errors.Is(err, ErrUnknownTask)
}

// Retryable reports whether running the same transaction again may succeed: after a serialization
// failure, a deadlock, a lock time-out or a lost connection, while the server starts or stops, or after a write on a
// standby.
func Retryable(err error) bool { return pgerr.IsRetryable(err) }

// isNotAppended reports whether err is raised by append_required.sql because the task is not as expected or
// the guard is not set, or by append_many.sql because another transaction has just inserted the version.
func isNotAppended(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SchemaName == "taskledger" && pg.TableName == "event" &&
		(pg.Code == pgerr.NotNullViolation && pg.ColumnName == "version" ||
			pg.Code == pgerr.UniqueViolation && pg.ConstraintName == "event_pkey")
}
