package ledger

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// Sentinel errors; compare with errors.Is.
var (
	// ErrUnknownTask: no task has this key.
	ErrUnknownTask = errors.New("unknown task")
	// ErrNotMigrated: the schema taskledger is missing or older than this program.
	ErrNotMigrated = pgerr.ErrNotMigrated
	// ErrUnavailable: no connection could be made, so nothing was sent.
	ErrUnavailable = pgerr.ErrUnavailable
	// ErrRetryTransaction: the caller's REPEATABLE READ or SERIALIZABLE transaction met a task
	// that it cannot see. Roll back and run the whole transaction again.
	ErrRetryTransaction = pgerr.ErrRetryTransaction
	// ErrTransactionEnded: the transaction that should have been committed was ended by somebody
	// else, by a COMMIT or ROLLBACK in SQL. What it had written may be committed.
	ErrTransactionEnded = errors.New("the transaction was ended inside the handler")
	// ErrTransactionAborted: a statement of the transaction had failed and its error was
	// swallowed, so that a commit would have rolled back. Nothing was committed.
	ErrTransactionAborted = errors.New("the transaction was aborted by an error that the handler swallowed")
)

// InvalidError says which input was refused and by which rule. Nothing was sent.
type InvalidError struct {
	Field string // kind, biz_id, args, …
	Value string // what was given, if it is short enough to show
	Rule  string // the rule it breaks
}

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

// ConflictError says that a task was not at the version an append expected: somebody else
// appended first. Nothing was written.
type ConflictError struct {
	Key      Key
	Expected Version
	Found    Version
	State    State // after the version found
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict on %s: expected version %d, found %d (%s)", e.Key, e.Expected, e.Found, e.State)
}

// TransitionError says that an event cannot follow the state its task is in.
type TransitionError struct {
	Key   Key
	Type  EventType
	State State
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("%s cannot be %s: it is %s", e.Key, e.Type, e.State)
}

// IllegalError says that an event cannot follow those before it: the ledger was tampered with
// or is read out of order.
type IllegalError struct {
	Event  Event
	State  State
	Reason string
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("illegal event %s %s after state %q: %s", e.Event.ID(), e.Event.Type, e.State, e.Reason)
}

// CorruptError says that stored bytes are not what they must be.
type CorruptError struct {
	What string
	Err  error
}

func (e *CorruptError) Error() string { return "corrupt " + e.What + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// IsConflict reports whether an append failed because the task is not as the caller expected: another
// process appended first, the event cannot follow the task's state, or the task does not exist.
// Nothing was written.
func IsConflict(err error) bool {
	var conflict *ConflictError
	var transition *TransitionError
	return errors.As(err, &conflict) || errors.As(err, &transition) || errors.Is(err, ErrUnknownTask)
}

// Retryable reports whether running the same transaction again may succeed: after a serialization
// failure, a deadlock, a lock time-out, a lost connection, or while the server starts or stops.
func Retryable(err error) bool { return pgerr.IsRetryable(err) }

// isNotAppended reports whether append_required.sql found the task other than expected, or the
// guard gone: no version to insert, or one that is taken; or append_many.sql one that was just taken.
func isNotAppended(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SchemaName == "taskledger" && pg.TableName == "event" &&
		(pg.Code == pgerr.NotNullViolation && pg.ColumnName == "version" || pg.Code == pgerr.UniqueViolation && pg.ConstraintName == "event_pkey")
}
