package workers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// waits is a handler that reports when it begins, and why its context was cancelled.
func waits(began chan<- struct{}, why chan<- error) func(context.Context, *workers.Job, orderArgs) error {
	return func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
		began <- struct{}{}
		<-ctx.Done()
		why <- context.Cause(ctx)
		return ctx.Err()
	}
}

// receive waits for a handler's report.
func receive[T any](b *bundle, what string, from <-chan T) T {
	b.T.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		b.T.Fatalf("still waiting for: %s", what)
		panic("not reached")
	}
}

// slowLease is a LeaseTTL with which the lease is not renewed during a test.
const slowLease = 10 * patience

// The handler of a task that is cancelled or buried is notified by a recall; if that is lost, it is
// cancelled when the lease is renewed.
func TestCancelOfRunning(t *testing.T) {
	t.Parallel()
	cancel := func(o *operator.Operator, ctx context.Context, k ledger.Key) error {
		_, err := o.Cancel(ctx, k, audit)
		return err
	}
	bury := func(o *operator.Operator, ctx context.Context, k ledger.Key) error {
		_, err := o.Bury(ctx, k, audit)
		return err
	}
	all := func(o *operator.Operator, ctx context.Context, k ledger.Key) error {
		_, err := o.CancelAll(ctx, operator.Filter{Kind: k.Kind}, audit, nil)
		return err
	}
	b := setup(t)
	b.Dispatch()
	const renewing = 3 * leaseTTL
	tests := map[string]struct {
		leaseTTL time.Duration // renewing, so that the lease is renewed after a second
		message  bool          // the dispatcher sends a recall
		started  bool          // the start is recorded
		act      func(*operator.Operator, context.Context, ledger.Key) error
		cause    error
		state    ledger.State
	}{
		"cancel, by a recall": {
			leaseTTL: slowLease,
			message:  true,
			started:  true,
			act:      cancel,
			cause:    workers.ErrCancelled,
			state:    ledger.StateCancelled,
		},
		"cancel, no start recorded": {
			leaseTTL: slowLease,
			message:  true,
			started:  false,
			act:      cancel,
			cause:    workers.ErrCancelled,
			state:    ledger.StateCancelled,
		},
		"cancel all, by a recall": {
			leaseTTL: slowLease,
			message:  true,
			started:  true,
			act:      all,
			cause:    workers.ErrCancelled,
			state:    ledger.StateCancelled,
		},
		"cancel, without a recall": {
			leaseTTL: renewing,
			message:  false,
			started:  true,
			act:      cancel,
			cause:    workers.ErrCancelled,
			state:    ledger.StateCancelled,
		},
		"cancel, no start recorded, without a recall": {
			leaseTTL: renewing,
			message:  false,
			started:  false,
			act:      cancel,
			cause:    workers.ErrCancelled,
			state:    ledger.StateCancelled,
		},
		"bury, by a recall": {
			leaseTTL: slowLease,
			message:  true,
			started:  true,
			act:      bury,
			cause:    workers.ErrFenced,
			state:    ledger.StateDead,
		},
		"bury, without a recall": {
			leaseTTL: renewing,
			message:  false,
			started:  true,
			act:      bury,
			cause:    workers.ErrFenced,
			state:    ledger.StateDead,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, stop := b.in(t), func() {}
			if !test.message {
				b = setup(t)
				stop = b.Dispatch()
			}
			began, why := make(chan struct{}, 1), make(chan error, 1)
			config := workers.SetStartedAfter(test.leaseTTL/2, workers.KindConfig{})
			if test.started {
				config = workers.SetStartedAfter(time.Millisecond, *config)
			}
			w := b.Work(workers.Config{LeaseTTL: test.leaseTTL}, b.atLeast(waits(began, why), config))
			k := b.Enqueue("o-1")
			receive(b, "the handler to begin", began)
			if test.started {
				b.AwaitState(k, ledger.StateRunning)
			}
			b.Project()
			stop()
			begin := time.Now()
			if err := test.act(b.Operator(), b.Context(), k); err != nil {
				t.Fatal(err)
			}
			if cause := receive(b, "the cause", why); !errors.Is(cause, test.cause) ||
				!errors.Is(cause, workers.ErrFenced) {
				t.Errorf("cause %v, want %v", cause, test.cause)
			}
			t.Logf("the handler was cancelled after %s", time.Since(begin))
			b.Await("nothing to be in flight", func() bool { return w.KindStatus().InFlight == 0 })
			if s := b.Task(k).State; s != test.state {
				t.Errorf("the task is %s; events: %v", s, b.EventTypes(k))
			}
			if n := w.KindStatus().Attempts[workers.OutcomeFenced]; n != 1 {
				t.Errorf("%d attempts were fenced, want 1", n)
			}
		})
	}
}

// The writes of the handler of a cancelled task are rolled back, even if it ignores the cancellation.
func TestCancelRollsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	began := make(chan struct{}, 1)
	w := b.Work(workers.Config{}, b.exactly(
		func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			err := insertEffect(ctx, tx, job, args)
			began <- struct{}{}
			<-ctx.Done()
			return err
		}, nil))
	k := b.Enqueue("o-1")
	receive(b, "the handler to begin", began)
	try(b.Operator().Cancel(b.Context(), k, audit))(t)
	b.Await("nothing to be in flight", func() bool { return w.KindStatus().InFlight == 0 })
	if n := b.Effects(k); n != 0 || b.Task(k).State != ledger.StateCancelled {
		t.Errorf("%d effects; events: %v", n, b.EventTypes(k))
	}
}

// If a handler finishes while an operator cancels its task, the first one wins. The other one fails: the operator
// gets the state, or the handler's transaction is rolled back.
func TestFinishedOrCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks = 60
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		time.Sleep(time.Millisecond)
		return insertEffect(context.WithoutCancel(ctx), tx, job, args)
	}, &workers.KindConfig{Slots: 1}))
	o := b.Operator()
	b.EnqueueMany(tasks)
	cancelled := 0
	for i := range tasks {
		k := ledger.Key{
			Kind:  order.Name(),
			BizID: ledger.BizID("o-00" + string(rune('0'+(tasks-1-i)/10)) + string(rune('0'+(tasks-1-i)%10))),
		}
		_, err := o.Cancel(b.Context(), k, audit)
		var lost *ledger.TransitionError
		switch {
		case err == nil:
			cancelled++
			if s := b.Task(k).State; s != ledger.StateCancelled {
				t.Errorf("%s was cancelled, and is %s", k, s)
			}
		case !errors.As(err, &lost) || lost.State != ledger.StateSucceeded:
			t.Errorf("%s: %v", k, err)
		}
	}
	b.Await("the others", func() bool {
		return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'") == tasks-cancelled
	})
	b.WantOneEffectEach(tasks - cancelled)
	if cancelled == 0 || cancelled == tasks {
		t.Logf("no race: %d of %d cancelled", cancelled, tasks)
	}
}

// A task that waits for a slot when it is cancelled is not begun.
func TestCancelOfWaitingForASlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	began, why := make(chan struct{}, 9), make(chan error, 9)
	w := b.Work(workers.Config{Slots: 1, LeaseTTL: slowLease}, b.atLeast(waits(began, why), nil))
	b.Enqueue("first")
	receive(b, "the handler to begin", began)
	k := b.Enqueue("second")
	b.Await("both in flight", func() bool { return w.KindStatus().InFlight == 2 })
	o := b.Operator()
	try(o.Cancel(b.Context(), k, audit))(t)
	try(o.Cancel(b.Context(), ledger.Key{Kind: order.Name(), BizID: "first"}, audit))(t)
	b.Await("nothing in flight", func() bool { return w.KindStatus().InFlight == 0 })
	if len(began) != 0 {
		t.Error("the cancelled task was begun")
	}
}
