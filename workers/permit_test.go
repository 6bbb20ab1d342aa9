package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// permitsInUse returns the use of the limit of the bundle's kind.
func (b *bundle) permitsInUse() int {
	b.T.Helper()
	const sql = "select running::integer from taskledger.limit_use where name = $1"
	return one[int](b, sql, string(b.Kind().Name()))
}

// expirePermits makes the permits of attempts without an event as old as they may be.
func (b *bundle) expirePermits() {
	b.T.Helper()
	ledgertest.ExecAsOwner(b.T, b.DB, `
		update taskledger.permit set taken_at = taken_at - taskledger_internal.permit_lasts()
		 where actor is not null and kind = $1`, string(b.Kind().Name()))
}

// Quick tasks of a kind with a concurrency limit record no start. The start of a slow one is recorded, and keeps its
// permit.
func TestPermitsWithoutEvents(t *testing.T) {
	t.Parallel()
	for _, g := range []workers.Guarantee{workers.ExactlyOnce, workers.AtLeastOnce} {
		t.Run(string(g), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			b.createRoom()
			const limit, tasks = 3, 40
			b.limitConcurrency(limit)
			for range 2 {
				b.Work(workers.Config{LeaseTTL: endless}, crowded(b.Kind(), b.DB, g))
			}
			b.EnqueueMany(tasks)
			b.AwaitSucceeded(tasks)
			kind := string(b.Kind().Name())
			if n := one[int](b, "select max(n) from seen where kind = $1", kind); n > limit {
				t.Errorf("%d handlers ran at a time, want at most %d", n, limit)
			}
			const starts = "select count(*)::integer from taskledger.event where kind = $1 and type = 'started'"
			if n := one[int](b, starts, kind); n > tasks/2 { // a refused task, or a slow one, records its start
				t.Errorf("%d of %d quick tasks have a recorded start", n, tasks)
			}
			if n := b.permitsInUse(); n != 0 {
				t.Errorf("%d permits are in use after the end", n)
			}
		})
	}
}

// The start of a slow attempt is recorded and keeps the permit, which then lasts.
func TestSlowAttemptKeepsItsPermit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.limitConcurrency(1)
	leave := make(chan struct{})
	handle := func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.Work(workers.Config{LeaseTTL: endless},
		b.atLeast(handle, workers.SetStartedAfter(50*time.Millisecond, workers.KindConfig{})))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateRunning)
	b.expirePermits()
	if n := b.permitsInUse(); n != 1 {
		t.Errorf("%d permits are in use, want 1", n)
	}
	close(leave)
	b.AwaitState(k, ledger.StateSucceeded)
	if n := b.permitsInUse(); n != 0 {
		t.Errorf("%d permits are in use after the end", n)
	}
}

// A worker that was suspended for so long that its permit expired, and whose slot another task has, cancels its handler
// when it records the start. The task runs again.
func TestSuspendedAttemptLosesItsPermit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	other := ledger.Key{Kind: "test.other", BizID: "other"}
	limit := ledger.StartLimit{Name: "shared", Kinds: map[ledger.Kind]int{b.Kind().Name(): 1, other.Kind: 1},
		MaxRunning: new(1)}
	if err := ledger.SetStartLimit(b.Context(), b.DB, limit, "alice"); err != nil {
		t.Fatal(err)
	}
	inside := make(chan struct{})
	var calls atomic.Int32
	causes := make(chan error, 1)
	handle := func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
		if calls.Add(1) > 1 {
			return nil
		}
		close(inside)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}
	b.Work(workers.Config{LeaseTTL: endless},
		b.atLeast(handle, workers.SetStartedAfter(4*time.Second, workers.KindConfig{})))
	k := b.Enqueue("o-1")
	<-inside
	b.expirePermits()
	try(ledger.Enqueue(b.Context(), b.DB, other, []byte(`{}`), nil))(t)
	try(ledger.Append(b.Context(), b.DB, ledger.AppendRequest{
		Key: other, Expected: 1, Type: ledger.EventStarted, Actor: "w"}))(t)
	if cause := receive(b, "the handler's end", causes); !errors.Is(cause, workers.ErrFenced) {
		t.Errorf("cause: %v, want ErrFenced", cause)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls while the limit is used up", n)
	}
	try(ledger.Append(b.Context(), b.DB, ledger.AppendRequest{
		Key: other, Expected: 2, Type: ledger.EventSucceeded, Actor: "w"}))(t)
	b.AwaitState(k, ledger.StateSucceeded)
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// A worker that stops gives a task back whose handler has not begun: the permit is free at once.
func TestErrNotBegunFreesThePermit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.limitConcurrency(1)
	waiting := make(chan struct{}, 1)
	first := b.Work(workers.Config{StopTimeout: time.Nanosecond},
		b.atLeast(func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
			waiting <- struct{}{}
			<-ctx.Done()
			return fmt.Errorf("wait: %w", workers.ErrNotBegun)
		}, nil))
	k := b.Enqueue("o-1")
	<-waiting
	if n := b.permitsInUse(); n != 1 {
		t.Errorf("%d permits are in use, want 1", n)
	}
	first.Stop()
	if n := b.permitsInUse(); n != 0 {
		t.Errorf("%d permits are in use after the worker has stopped", n)
	}
	b.Work(workers.Config{}, b.atLeast(b.outside, nil))
	b.AwaitState(k, ledger.StateSucceeded)
}

// A database that answers so slowly that a permit is not fresh delays tasks, and does not stop them: their starts are
// recorded.
func TestStalePermitsStopNoTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.limitConcurrency(1)
	ledgertest.ExecAsOwner(t, b.DB, `
		create function slow_permit() returns trigger language plpgsql as $$
		begin
		  perform pg_sleep(3.1);
		  return null;
		end
		$$;
		create trigger slow_permit after update on taskledger.permit
		  for each row when (new.actor is not null) execute function slow_permit()`)
	noop := func(context.Context, *workers.Job, orderArgs) error { return nil }
	b.Work(workers.Config{LeaseTTL: endless}, b.atLeast(noop, nil))
	b.AwaitState(b.Enqueue("o-1"), ledger.StateSucceeded)
}
