package workers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// endless is a LeaseTTL longer than any test: a task that is not given back is lost to the test.
const endless = time.Hour

// A pool that is stopped gives back its tasks in flight; that uses no attempt.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks = 10
	var inside atomic.Int32
	var cause atomic.Value
	w := b.Work(workers.Config{Slots: 4, StopTimeout: 100 * time.Millisecond, LeaseTTL: endless},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			inside.Add(1)
			<-ctx.Done()
			cause.Store(context.Cause(ctx))
			return ctx.Err()
		}, &workers.KindConfig{Slots: 8, Retry: ledger.RetryPolicy{Attempts: 1}}))
	b.EnqueueMany(tasks)
	b.Await("handlers, and tasks behind them", func() bool {
		return inside.Load() == 4 && w.KindStatus().InFlight == 8
	})
	w.Stop()
	if w.KindStatus().InFlight != 0 || w.KindStatus().Attempts[workers.OutcomeInterrupted] != 4 {
		t.Errorf("stopped as %+v", w.KindStatus())
	}
	if err := cause.Load().(error); !errors.Is(err, workers.ErrStopping) {
		t.Errorf("cause of the cancellation: %v, want ErrStopping", err)
	}
	if n := one[int](b, "select count(*)::integer from taskledger.event where type = 'interrupted'"); n != 4 {
		t.Errorf("%d interrupted, want 4", n)
	}
	if n := one[int](b, "select count(*)::integer from taskledger.workers"); n != 0 {
		t.Errorf("%d leases left", n)
	}

	b.Work(
		workers.Config{LeaseTTL: endless},
		b.exactly(insertEffect, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}),
	)
	b.AwaitSucceeded(tasks)
	b.WantOneEffectEach(tasks)
	if n := one[int](b, "select count(*)::integer from taskledger.event where type = 'failed'"); n != 0 {
		t.Errorf("%d failures", n)
	}
}

// Workers start and stop under load. Each gives back its tasks in flight and those on their way, so no task waits
// until its worker's loss is noticed.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks = 2000
	b.EnqueueMany(tasks)
	done := func() int {
		return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'")
	}
	generations := 0
	for n := 0; n < tasks; n = done() {
		generations++
		w := b.Work(workers.Config{LeaseTTL: endless}, b.exactly(insertEffect, nil))
		b.Await("some progress", func() bool { return done() >= min(n+100, tasks) })
		w.Stop()
	}
	b.WantOneEffectEach(tasks)
	if generations < 2 {
		t.Errorf("%d generations of workers did it", generations)
	}
}

// A handler that finishes within StopTimeout is not interrupted.
func TestStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	running, release := make(chan struct{}), make(chan struct{})
	w := b.Work(workers.Config{}, b.atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
		close(running)
		select {
		case <-release:
			return b.outside(ctx, job, args)
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil))
	k := b.Enqueue("o-1")
	<-running
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Stop()
	}()
	b.Enqueue("o-2")
	close(release)
	<-stopped
	if s := b.Task(k).State; s != ledger.StateSucceeded {
		t.Errorf("the task is %s", s)
	}
	b.WantOneEffect(k)
}

// A handler that ignores that it must stop is abandoned: its task is given back, and its later writes cannot be
// committed.
func TestStopAbandonsHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	running, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	w := b.Work(
		workers.Config{StopTimeout: 50 * time.Millisecond},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			close(running)
			<-release
			_, err := tx.Exec(context.WithoutCancel(ctx), "select 1")
			ended <- err
			return nil
		}, nil),
	)
	k := b.Enqueue("o-1")
	<-running
	b.AwaitState(k, ledger.StateRunning)
	w.Stop()
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventInterrupted}
	if diff := difference.Of(want, b.EventTypes(k)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	close(release)
	if err := <-ended; err == nil {
		t.Error("its transaction is still usable")
	}
	if n := b.Effects(k); n != 0 {
		t.Errorf("%d effects", n)
	}
	b.Await("its slot to be free", func() bool { return w.KindStatus().Running == 0 && w.KindStatus().Overdue == 0 })
}
