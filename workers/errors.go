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

// ErrNotBegun is the error of a handler whose context was done before it began, for example while it
// waited for another goroutine to receive its task. The task is given back at once: that uses no attempt,
// and no event unless the attempt's start was recorded. While the context is not done, it is an error
// like any other.
var ErrNotBegun = errors.New("the handler has not begun")

// ErrNotYours is what Commit and Rollback of a handler's transaction return. The pool commits it together
// with the task's outcome, and rolls it back if the handler returns an error.
var ErrNotYours = attempt.ErrNotYours

// errAbandoned is returned instead of a handler's error if the attempt was given up before it began.
var errAbandoned = errors.New("the attempt has ended")

var errForeignTx = errors.New("a middleware passed on another transaction than its own: RegisterSQL requires tx itself")
