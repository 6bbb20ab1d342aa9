package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatching"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// unanswered returns how many messages of the consumers are not acknowledged or not delivered yet.
func (b *bundle) unanswered() int {
	b.T.Helper()
	n := 0
	if dispatching.IsOn() {
		return n
	}
	for _, source := range stream.Consumers(order.Name(), ledger.AllShards) {
		c := try(b.JS.Consumer(b.Context(), stream.Name, source.Durable))(b.T)
		info := try(c.Info(b.Context()))(b.T)
		n += info.NumAckPending + int(info.NumPending)
	}
	return n
}

// again publishes the message of an event once more, with another message ID.
func (b *bundle) again(e ledger.Event) {
	b.T.Helper()
	b.Generation.Add(1)
	b.Publish(e)
}

// Two workers run the same task at once: one commits, the other is fenced and rolls back.
func TestTwoWorkersWithTheSameMessage(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	var inside atomic.Int32
	both := make(chan struct{})
	handler := exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		inside.Add(1)
		<-both
		return insertEffect(ctx, tx, job, args)
	}, nil)
	config := workers.Config{AckWait: 20 * time.Second} // no start is recorded meanwhile, which would be a claim
	first, second := b.Work(config, handler), b.Work(config, handler)
	k := b.Enqueue("o-1")
	b.Publish(b.History(k)[0])
	b.Await("a handler", func() bool { return inside.Load() == 1 })
	b.Await("the other worker's handler", func() bool {
		b.again(b.History(k)[0]) // the worker that has the task in flight adopts it
		return inside.Load() == 2
	})
	close(both)
	b.Await("both to end", func() bool { return first.KindStatus().InFlight+second.KindStatus().InFlight == 0 })
	b.WantOneEffect(k)
	attempts := map[workers.Outcome]int64{}
	for _, w := range []*worker{first, second} {
		for o, n := range w.KindStatus().Attempts {
			attempts[o] += n
		}
	}
	if attempts[workers.OutcomeSucceeded] != 1 || attempts[workers.OutcomeFenced] != 1 {
		t.Errorf("attempts %v, want one to succeed and one to be fenced", attempts)
	}
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 })
}

// Messages that are redelivered while their task runs are adopted, and answered with the first one.
func TestRedeliveryIsAdopted(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	var runs atomic.Int32
	release := make(chan struct{})
	w := b.Work(workers.Config{}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		runs.Add(1)
		<-release
		return insertEffect(ctx, tx, job, args)
	}, nil))
	k := b.Enqueue("o-1")
	b.Publish(b.History(k)[0])
	b.Await("the handler", func() bool { return runs.Load() == 1 })
	for range 5 {
		b.again(b.History(k)[0])
	}
	b.Await("adoption", func() bool { return w.KindStatus().Adopted == 5 })
	b.AwaitState(k, ledger.StateRunning) // it has run for StartedAfter, so the start is recorded
	close(release)
	b.AwaitState(k, ledger.StateSucceeded)
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 })
	if runs.Load() != 1 {
		t.Errorf("the handler ran %d times", runs.Load())
	}
	b.WantOneEffect(k)
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventStarted, ledger.EventSucceeded}
	if diff := cmp.Diff(want, b.EventTypes(k)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A handler that fails makes its task available again by an event of its own, whose message may arrive while the
// attempt is still ending. The message must not be answered with that attempt's.
func TestReleaseOvertakesTheEndOfItsAttempt(t *testing.T) {
	needMessages(t)
	// Not parallel: every worker of this process passes the crash point.
	b := setup(t)
	b.Relay()
	delivered := func() int {
		n := 0
		for _, c := range stream.Consumers(order.Name(), ledger.AllShards) {
			n += int(try(b.JS.Consumer(b.Context(), stream.Name, c.Durable))(t).CachedInfo().Delivered.Consumer)
		}
		return n
	}
	var passed atomic.Bool
	remove := fault.Set("worker.committed", func() {
		if passed.CompareAndSwap(false, true) {
			b.Await("the message of the release", func() bool { return delivered() == 2 })
		}
	})
	defer remove()
	w := b.Work(workers.Config{}, exactly(misbehaveOnce, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	b.Await("the acknowledgements", func() bool { return w.KindStatus().InFlight == 0 && b.unanswered() == 0 })
}

// Tasks fail several times, and each release wakes them.
func TestManyRetries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Relay()
	const tasks = 200
	b.EnqueueMany(tasks)
	b.Work(workers.Config{}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
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

// A message whose event the ledger does not have is refused, whatever its source.
func TestGhosts(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	w := b.Work(workers.Config{}, exactly(insertEffect, nil))
	k := b.Enqueue("o-1")
	real := b.History(k)[0]

	unknown := real
	unknown.BizID = "o-2" // the transaction that enqueued it was undone
	moved := real
	moved.RecordedAt = moved.RecordedAt.Add(-time.Microsecond) // the ledger issued its version again
	future := real
	future.Version, future.Type = 2, ledger.EventReleased // a fail-over lost it
	for i, ghost := range []ledger.Event{unknown, moved, future} {
		try(b.JS.PublishMsg(b.Context(), stream.Encode(ghost, real.Data, source, i+1)))(t)
	}
	b.Await("the ghosts to be refused", func() bool { return w.KindStatus().Ghosts == 3 })
	b.Await("the terminations", func() bool { return b.unanswered() == 0 })
	if n := one[int](b, "select count(*)::integer from effect"); n != 0 {
		t.Errorf("ghosts had %d effects", n)
	}
	b.Publish(real)
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// A message that is not of the ledger is refused, and does not block others.
func TestMalformedMessages(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	w := b.Work(workers.Config{}, exactly(insertEffect, nil))
	for _, header := range []nats.Header{nil, {"ce-specversion": {"1.0"}}, {"Status": {"408"}}} {
		try(
			b.JS.PublishMsg(
				b.Context(), &nats.Msg{Subject: "ledger.0.enqueued.test.order", Header: header, Data: []byte("{}")},
			),
		)(t)
	}
	b.Await("the messages to be refused", func() bool { return w.KindStatus().Malformed == 3 })
	k := b.Enqueue("o-1")
	b.Publish(b.History(k)[0])
	b.AwaitState(k, ledger.StateSucceeded)
	b.Await("the answers", func() bool { return b.unanswered() == 0 })
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
			b.Relay()
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
				workers.Config{AckWait: 10 * time.Second},
				exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
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
				}, &workers.KindConfig{StartedAfter: startedAfter}),
			)
			<-running
			if err := person.Commit(b.Context()); err != nil {
				t.Fatal(err)
			}
			close(cancelled)
			b.Await(
				"the attempt to be fenced", func() bool { return w.KindStatus().Attempts[workers.OutcomeFenced] == 1 },
			)
			b.Await("the acknowledgement", func() bool { return w.KindStatus().InFlight == 0 && b.unanswered() == 0 })
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
	b.Relay()
	const tasks = 20
	var inside atomic.Int32
	release := make(chan struct{})
	w := b.Work(
		workers.Config{AckWait: 10 * time.Second},
		atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
			inside.Add(1)
			<-release
			return b.outside(ctx, job, args)
		}, &workers.KindConfig{StartedAfter: 5 * time.Second}),
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
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 })
	if inside.Load() != tasks {
		t.Errorf("%d runs of %d tasks", inside.Load(), tasks)
	}
}

// Many workers, duplicate messages and tasks that sometimes fail: one effect each.
func TestManyWorkersAndDuplicates(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	const tasks = 300
	handler := exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffect(ctx, tx, job, args); err != nil {
			return err
		}
		if job.Attempt == 1 && args.Amount%7 == 0 {
			return fmt.Errorf("boom %d", args.Amount)
		}
		return nil
	}, &workers.KindConfig{Slots: 4})
	for range 3 {
		b.Work(workers.Config{}, handler)
	}
	var duplicates sync.WaitGroup
	b.EnqueueMany(tasks)
	duplicates.Go(func() {
		for e, err := range ledger.Read(b.Context(), b.DB, 0, tasks) {
			if err != nil {
				t.Error(err)
				return
			}
			if e.Type.WakesWorkers() {
				if _, err := b.JS.PublishMsg(b.Context(), stream.Encode(e, e.Data, source, 77)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	duplicates.Wait()
	b.AwaitSucceeded(tasks)
	b.WantOneEffectEach(tasks)
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 })
}
