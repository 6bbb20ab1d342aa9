package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Until is the condition that ends a wait for several tasks.
type Until int

// The conditions.
const (
	UntilAll   Until = iota // all tasks have finished
	UntilAny                // one task has finished
	UntilError              // all tasks have succeeded, or one has finished without success
)

// MaxWaitKeys is the greatest number of keys of one wait.
const MaxWaitKeys = 10_000

// Waiter waits for tasks. The type Waiter of package outbox implements it. It is safe for concurrent use.
type Waiter interface {
	// WaitFor returns the tasks with these keys, in their order, when the condition holds. For a task that has not
	// finished, or finishes at the same time as the task that ends the wait, State and Version are from the last read,
	// or zero. If ctx is done, it returns the tasks as they are, and the error of ctx. It returns [ErrUnknownTask] if
	// one of the tasks does not exist. The keys are valid.
	WaitFor(ctx context.Context, keys []Key, until Until) ([]Task, error)
}

// Wait returns the task when it has finished. It waits until ctx is done.
//
// It returns the task and a [*TaskError] if it finished without success, a [*WaitTimeoutError] if the deadline of ctx
// has passed, [ErrUnknownTask] if it does not exist, and the [*InvalidError] of [Key.ValidateStored]. A time-out leaves
// the task as it is: it runs on.
//
// A transaction that enqueued the task must have been committed. A handler that waits for another task occupies its
// slot: let the task begin after the other task, by [EnqueueOptions].After.
func Wait(ctx context.Context, w Waiter, k Key) (Task, error) {
	tasks, err := WaitMany(ctx, w, []Key{k}, UntilAll)
	if len(tasks) == 0 {
		return Task{Key: k}, err
	}
	return tasks[0], err
}

// Wait returns the task of this kind for the business object id when it has finished: see the function [Wait].
func (k TypedKind[A]) Wait(ctx context.Context, w Waiter, id BizID) (Task, error) {
	return Wait(ctx, w, k.Key(id))
}

// WaitMany returns the tasks with these keys, in their order, when the condition holds. A task counts as finished once
// it has finished, even if an operator releases it while WaitMany waits for others.
//
// If tasks have finished without success, it returns the tasks and the [*TaskError] of the first of them. Its other
// errors are the errors of [Wait]; after a time-out it also returns all tasks as they are. At most [MaxWaitKeys] keys
// are allowed.
func WaitMany(ctx context.Context, w Waiter, keys []Key, until Until) ([]Task, error) {
	if err := checkWait(keys, until); err != nil {
		return nil, err
	}
	tasks, err := w.WaitFor(ctx, keys, until)
	switch {
	case err != nil && errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return tasks, newWaitTimeoutError(keys, tasks)
	case err != nil && len(keys) == 1:
		return tasks, fmt.Errorf("wait for %s: %w", keys[0], err)
	case err != nil:
		return tasks, fmt.Errorf("wait for %d tasks: %w", len(keys), err)
	}
	for _, t := range tasks {
		if t.State.Finished() && t.State != StateSucceeded {
			return tasks, &TaskError{Task: t}
		}
	}
	return tasks, nil
}

// checkWait returns an [*InvalidError] for an invalid wait.
func checkWait(keys []Key, until Until) error {
	switch {
	case len(keys) == 0:
		return &InvalidError{Field: "keys", Rule: "must have at least one key to wait for"}
	case len(keys) > MaxWaitKeys:
		rule := fmt.Sprintf("must have at most %d keys to wait for, got %d", MaxWaitKeys, len(keys))
		return &InvalidError{Field: "keys", Rule: rule}
	case until < UntilAll || until > UntilError:
		rule := "must be UntilAll, UntilAny or UntilError"
		return &InvalidError{Field: "until", Value: strconv.Itoa(int(until)), Rule: rule}
	}
	for _, k := range keys {
		if err := k.ValidateStored(); err != nil {
			return fmt.Errorf("wait for %s: %w", k, err)
		}
	}
	return nil
}

// newWaitTimeoutError returns the error for the tasks that have not finished.
func newWaitTimeoutError(keys []Key, tasks []Task) error {
	e := &WaitTimeoutError{}
	for i, k := range keys {
		state := StateNone
		if i < len(tasks) {
			state = tasks[i].State
		}
		if state.Finished() {
			continue
		}
		if e.Unfinished++; e.Unfinished == 1 {
			e.Key, e.State = k, state
		}
	}
	return e
}

// ResultOf returns the result of a task: the handler's result, decoded from JSON as R. A task without a result returns
// the zero value; json.RawMessage and []byte are copies of the JSON.
//
// It returns a [*TaskError] if the task has not succeeded, and a [*CorruptError] if the result does not decode as R.
func ResultOf[R any](t Task) (R, error) {
	if t.State != StateSucceeded {
		var none R
		return none, &TaskError{Task: t}
	}
	return decodeAs[R]("result of ", t.Key.String(), t.Result)
}
