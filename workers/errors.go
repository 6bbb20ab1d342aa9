package workers

import (
	"errors"

	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// Causes of the end of a handler's context, as [context.Cause] returns them.
var (
	// ErrStopping: the pool is stopping and its StopTimeout has passed. A handler that returns an error now gives its
	// task back, which uses no attempt.
	ErrStopping = attempt.ErrStopping
	// ErrTimeout: the attempt took longer than its kind's Timeout.
	ErrTimeout = attempt.ErrTimeout
	// ErrExpired: the deadline of the whole task has passed (FinishBy). There is no further attempt.
	ErrExpired = attempt.ErrExpired
	// ErrFenced: another process appended to the task, for example cancelled it or took it over. Everything that the
	// handler's transaction wrote is rolled back.
	ErrFenced = attempt.ErrFenced
	// ErrCancelled is the ErrFenced of a task that was cancelled.
	ErrCancelled = attempt.ErrCancelled
)

// ErrNotBegun is the error of a handler whose context was done before it began, for example while it waited for
// another goroutine to receive its task. The task is given back at once; that uses no attempt, and no event unless
// the attempt's start was recorded. While the context is not done, it is an error like any other.
var ErrNotBegun = errors.New("the handler has not begun")

// ErrNotYours is the error of Commit and Rollback of a handler's transaction. The pool commits it together with the
// task's outcome, and rolls it back if the handler returns an error.
var ErrNotYours = attempt.ErrNotYours

// errAbandoned replaces a handler's error if the attempt was abandoned before it began.
var errAbandoned = errors.New("the attempt has ended")

var errForeignTx = errors.New(
	"middleware passed on a transaction other than its own: a handler of database/sql requires tx itself",
)
