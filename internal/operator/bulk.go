package operator

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// BulkOptions are options of the methods for many tasks. Nil means all defaults.
type BulkOptions struct {
	// DryRun counts the matching tasks and changes none. Default: false.
	DryRun bool
	// Progress is called after each batch, from the caller's goroutine. Default: no calls.
	Progress func(BulkResult)
}

// BulkResult counts the tasks of a method for many tasks.
type BulkResult struct {
	Found   int `json:"found"`   // tasks that match the filter
	Done    int `json:"done"`    // changed tasks; in a dry run 0
	Skipped int `json:"skipped"` // tasks that moved on meanwhile, or are locked or erased
}

// ReleaseAll is [Operator.Release] for all tasks that match a filter. Default state: dead.
//
// This and the other methods for many tasks work in batches, and commit each. If the context or an error stops
// one, the committed batches stay, and calling it again does the rest. It then returns the result so far.
//
// Errors: [*ledger.InvalidError] with a field of the filter; [ledger.ErrNotMigrated]; the error of ctx.
func (o *Operator) ReleaseAll(ctx context.Context, f Filter, audit Audit, b *BulkOptions) (BulkResult, error) {
	return o.all(ctx, f, action{event: ledger.EventReleased, audit: audit}, b)
}

// BuryAll is [Operator.Bury] for all tasks that match a filter, see [Operator.ReleaseAll]. Default state: all
// unfinished states.
func (o *Operator) BuryAll(ctx context.Context, f Filter, audit Audit, b *BulkOptions) (BulkResult, error) {
	return o.all(ctx, f, action{event: ledger.EventBuried, audit: audit}, b)
}

// CancelAll is [Operator.Cancel] for all tasks that match a filter, see [Operator.ReleaseAll]. Default state: all
// unfinished states.
func (o *Operator) CancelAll(ctx context.Context, f Filter, audit Audit, b *BulkOptions) (BulkResult, error) {
	return o.all(ctx, f, action{event: ledger.EventCancelled, audit: audit}, b)
}

// CancelDead ends dead tasks that match a filter, and shall never run: it releases and cancels each in one transaction,
// so that no worker begins it, and a line goes on without it. See [Operator.ReleaseAll]; it stops at f.Limit.
func (o *Operator) CancelDead(ctx context.Context, f Filter, audit Audit) (result BulkResult, err error) {
	a := action{event: ledger.EventReleased, audit: audit}
	if err := a.validate(); err != nil {
		return result, err
	}
	f.State = ledger.StateDead
	s, err := f.search(a)
	if err != nil {
		return result, err
	}
	for hasMore := true; hasMore; {
		var tasks []match
		if tasks, hasMore, err = s.next(ctx, o.db); err != nil {
			return result, err
		}
		for _, t := range tasks {
			if f.Limit > 0 && result.Found == f.Limit {
				return result, nil
			}
			result.Found++
			switch err := o.cancelDead(ctx, t, audit); {
			case err == nil:
				result.Done++
			case ledger.IsConflict(err) || errors.As(err, new(*ledger.TransitionError)),
				pgerr.Is(err, pgerr.LockNotAvailable, pgerr.ObjectNotInPrerequisiteState): // it is moving on, or erased
				result.Skipped++
			default:
				return result, err
			}
		}
	}
	return result, nil
}

// CancelDeadTask is [Operator.CancelDead] for one task. It returns a [*ledger.TransitionError] if the task is not dead.
func (o *Operator) CancelDeadTask(ctx context.Context, k ledger.Key, audit Audit) error {
	if err := audit.validate(); err != nil {
		return err
	}
	t, err := ledger.Load(ctx, o.db, k)
	if err != nil {
		return err
	}
	if t.State != ledger.StateDead {
		return &ledger.TransitionError{Key: k, Type: ledger.EventCancelled, State: t.State}
	}
	return o.cancelDead(ctx, match{key: k, version: t.Version}, audit)
}

// begin begins a transaction that does not wait long for another transaction that changes the same task.
const begin = "begin isolation level read committed; set local lock_timeout to '200ms'"

// cancelDead releases and cancels a dead task that is still at its version. It fails with the SQLSTATE
// lock_not_available if another transaction locks the task.
func (o *Operator) cancelDead(ctx context.Context, t match, audit Audit) error {
	return pgx.BeginTxFunc(ctx, o.db, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		options := audit.options()
		options.IfVersion = t.version
		released, err := ledger.Release(ctx, tx, t.key, options)
		if err == nil {
			options.IfVersion = released.Version
			_, err = ledger.Cancel(ctx, tx, t.key, options)
		}
		return err
	})
}

// RescheduleAll is [Operator.Reschedule] for all tasks that match a filter, see [Operator.ReleaseAll]. Default
// state: scheduled, retrying and available; available alone if only the priority changes.
func (o *Operator) RescheduleAll(
	ctx context.Context, f Filter, due ledger.Due, audit Audit, b *BulkOptions,
) (BulkResult, error) {
	return o.all(ctx, f, action{event: ledger.EventScheduled, due: due, audit: audit}, b)
}

// all applies an action to all tasks that match a filter, page by page.
func (o *Operator) all(ctx context.Context, f Filter, a action, b *BulkOptions) (result BulkResult, err error) {
	if err := a.validate(); err != nil {
		return result, err
	}
	s, err := f.search(a)
	if err != nil {
		return result, err
	}
	if b == nil {
		b = &BulkOptions{}
	}
	for hasMore := true; hasMore; {
		var tasks []match
		if tasks, hasMore, err = s.next(ctx, o.db); err != nil {
			return result, err
		}
		for len(tasks) > 0 {
			n := min(len(tasks), ledger.AppendBatch)
			if f.Limit > 0 {
				n = min(n, f.Limit-result.Found)
			}
			if n == 0 {
				return result, nil
			}
			result.Found += n
			if !b.DryRun {
				if err := o.batch(ctx, a, s, tasks[:n], &result); err != nil {
					return result, err
				}
			}
			if b.Progress != nil {
				b.Progress(result)
			}
			tasks = tasks[n:]
		}
	}
	return result, nil
}

// batch applies an action to some tasks. A task that has moved on since it was found is tried again at its new version,
// at most maxConflicts times, if it still matches the filter.
func (o *Operator) batch(ctx context.Context, a action, s *search, tasks []match, result *BulkResult) error {
	var failed error
	for conflicts := 1; len(tasks) > 0 && failed == nil; conflicts++ {
		requests := make([]ledger.AppendRequest, len(tasks))
		for i, t := range tasks {
			var err error
			if requests[i], err = a.request(t.key, t.version); err != nil {
				return err
			}
		}
		var again []match
		for i, r := range ledger.AppendEach(ctx, o.db, requests) {
			switch t := tasks[i]; {
			case r.Err == nil:
				result.Done++
			case !ledger.IsConflict(r.Err) && !isRefused(r.Err):
				failed = cmp.Or(failed, r.Err)
			case conflicts < maxConflicts && s.stillMatches(&t, r.Err):
				again = append(again, t)
			default:
				result.Skipped++
			}
		}
		tasks = again
	}
	return failed
}

// isRefused reports whether an append failed because the task is moving on, or because its args are erased and it
// cannot run.
func isRefused(err error) bool {
	return pgerr.Is(err, pgerr.LockNotAvailable) || errors.Is(err, ledger.ErrRetryTransaction)
}
