package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Tasks fail several times, and each release wakes them.
func TestManyRetries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks = 200
	b.EnqueueMany(tasks)
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffect(ctx, tx, job, args); err != nil {
			return err
		}
		if job.Attempt < 4 {
			return errBoom
		}
		return nil
	}, nil))
	b.AwaitSucceeded(tasks)
	b.WantOneEffectEach(tasks)
	if n := one[int](b, "select count(*)::integer from effect where attempt = 4"); n != tasks {
		t.Errorf("%d of %d tasks were done at the fourth attempt", n, tasks)
	}
}

// An operator cancels the task while its handler runs. The handler's writes are rolled back, and its context is
// cancelled when its start is recorded. The operator's transaction begins before the handler, so that the append of
// the start always comes second.
func TestCancelledWhileRunning(t *testing.T) {
	t.Parallel()
	for name, startedAfter := range map[string]time.Duration{
		"before its start is recorded": 50 * time.Millisecond, "at the commit": 0,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			running, cancelled := make(chan struct{}), make(chan struct{})
			k := b.Enqueue("o-1")
			person := try(b.DB.Begin(b.Context()))(t)
			defer func() { _ = person.Rollback(b.Context()) }()
			try(ledger.Append(b.Context(), person, ledger.AppendRequest{
				Key:      k,
				Expected: 1,
				Type:     ledger.EventCancelled,
				Actor:    "a person",
				Data:     json.RawMessage(`{"reason":"changed my mind"}`),
			}))(t)
			var cause error
			w := b.Work(
				workers.Config{LeaseTTL: 10 * time.Second},
				b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
					if err := insertEffect(ctx, tx, job, args); err != nil {
						return err
					}
					close(running)
					<-cancelled
					if startedAfter > 0 {
						<-ctx.Done()
						cause = context.Cause(ctx)
					}
					return nil
				}, workers.SetStartedAfter(startedAfter, workers.KindConfig{})),
			)
			<-running
			if err := person.Commit(b.Context()); err != nil {
				t.Fatal(err)
			}
			close(cancelled)
			b.Await(
				"the attempt to be fenced", func() bool { return w.KindStatus().Attempts[workers.OutcomeFenced] == 1 },
			)
			b.Await("the end of the task", func() bool { return w.KindStatus().InFlight == 0 })
			if n := b.Effects(k); n != 0 {
				t.Errorf("%d effects of a cancelled task", n)
			}
			if startedAfter > 0 && !errors.Is(cause, workers.ErrFenced) {
				t.Errorf("the handler's context was cancelled because of %v", cause)
			}
			if s := b.Task(k).State; s != ledger.StateCancelled {
				t.Errorf("the task is %s", s)
			}
		})
	}
}

// Successes are recorded in groups. A success that conflicts, and one whose key an open transaction locks, do not
// affect the others.
func TestGroupWithAConflictAndALock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks = 20
	var inside atomic.Int32
	release := make(chan struct{})
	w := b.Work(
		workers.Config{LeaseTTL: 10 * time.Second},
		b.atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
			inside.Add(1)
			<-release
			return b.outside(context.WithoutCancel(ctx), job, args)
		}, workers.SetStartedAfter(5*time.Second, workers.KindConfig{})),
	)
	b.EnqueueMany(tasks)
	b.Await("all handlers", func() bool { return inside.Load() == tasks })

	cancel := func(id ledger.BizID) ledger.AppendRequest {
		return ledger.AppendRequest{
			Key: ledger.Key{Kind: order.Name(), BizID: id}, Expected: 1, Type: ledger.EventCancelled,
		}
	}
	try(ledger.Append(b.Context(), b.DB, cancel("o-0003")))(t)
	holder := try(b.DB.Begin(b.Context()))(t)
	try(ledger.Append(b.Context(), holder, cancel("o-0005")))(t)
	close(release)
	b.AwaitSucceeded(tasks - 2)
	b.Await(
		"the one that was cancelled to be fenced",
		func() bool { return w.KindStatus().Attempts[workers.OutcomeFenced] == 1 },
	)
	if err := holder.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.AwaitSucceeded(tasks - 1)
	b.WantOneEffectEach(tasks) // the cancelled one had its effect too, outside of the transaction
	if inside.Load() != tasks {
		t.Errorf("%d runs of %d tasks", inside.Load(), tasks)
	}
}
