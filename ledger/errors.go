package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// Sentinel errors; compare with errors.Is.
var (
	// ErrUnknownTask: no task has this key.
	ErrUnknownTask = errors.New("unknown task")
	// ErrNotMigrated: the schema taskledger is missing or older than this program.
	ErrNotMigrated = errors.New("the database is not migrated (run: taskledger migrate up)")
	// ErrUnavailable: no connection could be made, so nothing was sent.
	ErrUnavailable = errors.New("cannot connect to the database: is the server running there, and are address, user and password right")
	// ErrRetryTransaction: the caller's REPEATABLE READ or SERIALIZABLE transaction met a task
	// that it cannot see. Roll back and run the whole transaction again.
	ErrRetryTransaction = errors.New("retry the transaction: a concurrent one wrote the same task")
	// ErrSuperseded: another reader of the same name went on; this one must stop.
	ErrSuperseded = errors.New("superseded: another reader has advanced the cursor")
	// ErrCrashed: the database crashed or failed over since the feed was opened, and may give out
	// again transaction ids and positions that the feed has passed. Open the feed anew: it goes
	// on from its cursor.
	ErrCrashed = errors.New("the database crashed since the feed was opened: open the feed anew")
	// ErrNotPrimary: a feed was opened on a standby, whose snapshots it cannot use.
	ErrNotPrimary = errors.New("the database is a standby: connect to the primary")
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

// OriginError says that a cursor was written in another cluster or database, so that its
// transaction ids mean nothing in this one: the database was restored from a dump or copied.
type OriginError struct {
	Reader      string
	Found, Want string // origin of the cursor row, and of this database
}

func (e *OriginError) Error() string {
	return fmt.Sprintf("cursor %q comes from another database (origin %s, this is %s): was it restored from a dump? The cure is an operator's rebase: docs/operations.md",
		e.Reader, e.Found, e.Want)
}

// Retryable reports whether running the same transaction again may succeed: serialization
// failures, deadlocks, lost connections, a server that is starting or stopping, lock time-outs.
func Retryable(err error) bool {
	if errors.Is(err, ErrRetryTransaction) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return isConnectionLost(err) || pgconn.SafeToRetry(err) || pgconn.Timeout(err)
	}
	switch pg.Code {
	case "40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300":
		return true
	}
	return len(pg.Code) == 5 && pg.Code[:2] == "08"
}

// isConnectionLost reports whether the connection broke or could not be made.
func isConnectionLost(err error) bool {
	var connect *pgconn.ConnectError
	var network *net.OpError
	return (errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn)) &&
		!errors.Is(err, context.Canceled)
}

// explain wraps a database error with the operation, turning the codes that have a cure into
// the error that names it.
func explain(op string, err error) error {
	if err == nil {
		return nil
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "42P01", "3F000", "42883", "42704", "42703": // undefined table, schema, function, type, column
			return fmt.Errorf("%s: %w: %w", op, ErrNotMigrated, err)
		case "40001":
			return fmt.Errorf("%s: %w: %w", op, ErrRetryTransaction, err)
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}

// isReadOnly reports whether a write was refused because the server is a standby.
func isReadOnly(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "25006"
}

// isNotAppended reports whether append_required.sql found the task other than expected, or the
// guard gone: no version to insert, or one that is taken; or append_many.sql one that was just taken.
func isNotAppended(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SchemaName == "taskledger" && pg.TableName == "event" &&
		(pg.Code == "23502" && pg.ColumnName == "version" || pg.Code == "23505" && pg.ConstraintName == "event_pkey")
}
