package workers

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Why a handler's context was cancelled: [context.Cause] tells a handler which it was.
var (
	// ErrStopping: the pool is stopping and its StopTimeout is over. A handler that returns an
	// error now gives its task back; that uses no attempt.
	ErrStopping = errors.New("the worker is stopping")
	// ErrTimeout: the attempt took longer than its kind's Timeout.
	ErrTimeout = errors.New("the attempt timed out")
	// ErrExpired: the deadline of the whole task has passed (FinishBy). There is no other attempt.
	ErrExpired = errors.New("the task's deadline has passed")
	// ErrFenced: the claim is lost, because somebody else appended to the task: cancelled it, or
	// took it over. Whatever the handler's transaction wrote is rolled back.
	ErrFenced = errors.New("the claim to the task is lost")
	// ErrCancelled is the ErrFenced of a task that was cancelled.
	ErrCancelled = fmt.Errorf("%w: the task was cancelled", ErrFenced)
)

// ForeignStreamError says that the stream belongs to another ledger.
type ForeignStreamError = stream.ForeignError

// ErrNotYours is what Commit and Rollback of a handler's transaction return: the pool commits
// it together with the task's outcome, and rolls it back if the handler returns an error.
var ErrNotYours = errors.New("workers: a handler must not end its transaction: return nil to commit, an error to roll back")

var (
	errGoexit   = errors.New("the handler ended its goroutine (runtime.Goexit)")
	errRowsOpen = errors.New("the handler returned while rows of its transaction were still open: close them")
)

// argsError says that the payload of a task is not what its kind takes; trying again is useless.
type argsError struct{ err error }

func (e *argsError) Error() string { return e.err.Error() }
func (e *argsError) Unwrap() error { return e.err }

// fencedBy is what the handler of an attempt is told whose append was fenced.
func fencedBy(err error) error {
	var conflict *ledger.ConflictError
	if errors.As(err, &conflict) && conflict.State == ledger.StateCancelled {
		return ErrCancelled
	}
	return ErrFenced
}

// refused reports whether the database answered an append with an error that stays: what was
// to be appended or committed is at fault, not the moment.
func refused(err error) bool {
	var invalid *ledger.InvalidError
	var pg *pgconn.PgError
	return errors.As(err, &invalid) || errors.As(err, &pg) && !ledger.Retryable(err)
}
