package workers

import (
	"context"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// BulkOptions says how an order for many tasks is carried out. Nil means all defaults.
type BulkOptions struct {
	// DryRun counts what would be done, and does nothing.
	DryRun bool
	// Progress is told how far it is, after each batch, from the caller's goroutine. Nil: nobody.
	Progress func(Tally)
}

// Tally is what an order for many tasks has come to.
type Tally struct {
	Found   int `json:"found"`   // tasks that the filter means
	Done    int `json:"done"`    // of them, those to which it was done; in a dry run none
	Skipped int `json:"skipped"` // of them, those that had moved on in the meantime
}

// ReleaseAll is [Operator.Release] for all tasks that a filter means: the dead ones, if it names no state.
//
// This and the other methods for many tasks work in batches, each of which commits. If one is
// stopped, by its context or an error, what it has done stays done, and calling it again does the
// rest: nothing is done twice. It returns the tally up to there.
//
// Errors: [*ledger.InvalidError] that names a field of the filter; [ledger.ErrNotMigrated]; that
// of ctx.
func (o *Operator) ReleaseAll(ctx context.Context, f Filter, by By, b *BulkOptions) (Tally, error) {
	return o.all(ctx, f, order{event: ledger.EventReleased, by: by}, b)
}

// BuryAll is [Operator.Bury] for all tasks that a filter means: all unfinished ones, if it names
// no state. It works as [Operator.ReleaseAll] does.
func (o *Operator) BuryAll(ctx context.Context, f Filter, by By, b *BulkOptions) (Tally, error) {
	return o.all(ctx, f, order{event: ledger.EventBuried, by: by}, b)
}

// CancelAll is [Operator.Cancel] for all tasks that a filter means: all unfinished ones, if it
// names no state. It works as [Operator.ReleaseAll] does.
func (o *Operator) CancelAll(ctx context.Context, f Filter, by By, b *BulkOptions) (Tally, error) {
	return o.all(ctx, f, order{event: ledger.EventCancelled, by: by}, b)
}

// RescheduleAll is [Operator.Reschedule] for all tasks that a filter means: those that wait or
// are available, if it names no state. It works as [Operator.ReleaseAll] does.
func (o *Operator) RescheduleAll(ctx context.Context, f Filter, when When, by By, b *BulkOptions) (Tally, error) {
	return o.all(ctx, f, order{event: ledger.EventScheduled, when: when, by: by}, b)
}

// all carries an order out on all that a filter means, a stretch of tasks after the other.
func (o *Operator) all(ctx context.Context, f Filter, r order, b *BulkOptions) (tally Tally, err error) {
	if err := r.validate(); err != nil {
		return tally, err
	}
	q, err := f.complete(r)
	if err != nil {
		return tally, err
	}
	if b == nil {
		b = &BulkOptions{}
	}
	defer o.flush()
	var last place
	for more := true; more; {
		var tasks []found
		if tasks, last, more, err = o.find(ctx, q, last); err != nil {
			return tally, err
		}
		for len(tasks) > 0 {
			n := min(len(tasks), maxBatch)
			if q.Limit > 0 {
				n = min(n, q.Limit-tally.Found)
			}
			if n == 0 {
				return tally, nil
			}
			tally.Found += n
			if !b.DryRun {
				if err := o.batch(ctx, r, tasks[:n], &tally); err != nil {
					return tally, err
				}
			}
			if b.Progress != nil {
				b.Progress(tally)
			}
			tasks = tasks[n:]
		}
	}
	return tally, nil
}

// batch carries an order out on some tasks, as they were found.
func (o *Operator) batch(ctx context.Context, r order, tasks []found, tally *Tally) error {
	requests := make([]ledger.AppendRequest, len(tasks))
	for i, t := range tasks {
		var err error
		if requests[i], err = r.request(t.key, t.version); err != nil {
			return err
		}
	}
	var failed error
	for i, result := range ledger.AppendEach(ctx, o.config.DB, requests) {
		switch {
		case result.Err == nil:
			tally.Done++
			o.recall(tasks[i].key, tasks[i].state)
		case ledger.IsConflict(result.Err), pgerr.Is(result.Err, pgerr.LockNotAvailable): // or it is just moving on
			tally.Skipped++
		case failed == nil:
			failed = result.Err
		}
	}
	return failed
}
