package workers

import (
	"errors"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// Why a handler's context was cancelled, as [context.Cause] returns it.
var (
	// ErrStopping: the pool is stopping and its StopTimeout has passed. A handler that returns an error
	// now gives its task back, which uses no attempt.
	ErrStopping = attempt.ErrStopping
	// ErrTimeout: the attempt took longer than its kind's Timeout.
	ErrTimeout = attempt.ErrTimeout
	// ErrExpired: the deadline of the whole task has passed (FinishBy). There is no further attempt.
	ErrExpired = attempt.ErrExpired
	// ErrFenced: the claim is lost, because another process appended to the task: cancelled it, or took it
	// over. Whatever the handler's transaction wrote is rolled back.
	ErrFenced = attempt.ErrFenced
	// ErrCancelled is the ErrFenced of a task that was cancelled.
	ErrCancelled = attempt.ErrCancelled
)

// ForeignStreamError reports that the stream belongs to another ledger.
type ForeignStreamError = stream.ForeignError

// ErrNotYours is what Commit and Rollback of a handler's transaction return. The pool commits it together
// with the task's outcome, and rolls it back if the handler returns an error.
var ErrNotYours = attempt.ErrNotYours

// errAbandoned is returned instead of a handler's error if the attempt was given up before it began.
var errAbandoned = errors.New("the attempt has ended")

// argsError reports that the payload of a task is not what its kind takes. Trying again is useless.
type argsError struct{ err error }

func (e *argsError) Error() string { return e.err.Error() }
func (e *argsError) Unwrap() error { return e.err }
