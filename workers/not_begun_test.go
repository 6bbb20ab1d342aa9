package workers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A task whose handler has not begun when its context ends is given back: no attempt is used, and nothing is recorded.
func TestErrNotBegunGivesTheTaskBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	waiting := make(chan struct{}, 1)
	wait := func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
		waiting <- struct{}{}
		<-ctx.Done()
		return fmt.Errorf("wait for a permit: %w", workers.ErrNotBegun)
	}
	first := b.Work(workers.Config{StopTimeout: time.Nanosecond}, b.atLeast(wait, nil))
	k := b.Enqueue("o-1")
	<-waiting
	first.Stop()
	if types := b.EventTypes(k); len(types) != 1 {
		t.Errorf("events: %v, want enqueued only", types)
	}
	b.Work(workers.Config{}, b.atLeast(b.outside, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	if task := b.Task(k); task.Attempt != 1 || task.Failures != 0 {
		t.Errorf("%+v", task)
	}
}

// While the context is not done, ErrNotBegun is an error like any other, so it cannot make a loop.
func TestErrNotBegunTooEarly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	tooEarly := func(context.Context, *workers.Job, orderArgs) error { return workers.ErrNotBegun }
	b.Work(workers.Config{}, b.atLeast(tooEarly, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateDead)
	if task := b.Task(k); !strings.Contains(task.Error, workers.ErrNotBegun.Error()) {
		t.Errorf("%+v", task)
	}
}

// A task that a Caller's handler has not begun stays available, and a worker runs it.
func TestErrNotBegunInACaller(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.Dispatch()
	c := b.caller(func(ctx context.Context, _ pgx.Tx, _ *workers.Job, _ orderArgs) error {
		<-ctx.Done()
		return workers.ErrNotBegun
	}, &workers.KindConfig{Timeout: 10 * time.Millisecond})
	answer := try(b.buy(c, "o-1", true))(t)
	if answer.State != ledger.StateAvailable || answer.Version != 1 || answer.MustRun {
		t.Errorf("%+v", answer)
	}
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}
