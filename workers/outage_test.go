package workers_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// NATS is unavailable for longer than AckWait while a handler runs. Its message is redelivered, to any worker, and
// the handler is not disturbed.
func TestNATSOutageUnderARunningHandler(t *testing.T) {
	t.Parallel()
	needMessages(t)
	b := setup(t)
	b.Relay()
	var runs atomic.Int32
	release := make(chan struct{})
	handler := exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		runs.Add(1)
		select {
		case <-release:
			return insertEffect(ctx, tx, job, args)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, nil)
	first, second := b.Work(workers.Config{}, handler), b.Work(workers.Config{}, handler)
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateRunning)
	b.Server.Stop()
	lease := one[time.Time](b, "select min(alive_until) from taskledger.lease")
	b.Await("twice AckWait to pass", func() bool {
		return one[time.Time](b, "select min(alive_until) from taskledger.lease").After(lease.Add(2 * ackWait))
	})
	if err := b.Server.Restart(); err != nil {
		t.Fatal(err)
	}
	b.Await("the redelivery", func() bool { return first.KindStatus().Redelivered+second.KindStatus().Redelivered > 0 })
	close(release)
	b.AwaitState(k, ledger.StateSucceeded)
	b.Await("the acknowledgement", func() bool { return b.unanswered() == 0 })
	b.WantOneEffect(k)
	if runs.Load() != 1 {
		t.Errorf("the handler ran %d times", runs.Load())
	}
	if n := first.KindStatus().TakenOver + second.KindStatus().TakenOver; n != 0 {
		t.Errorf("healthy work was taken over %d times", n)
	}
}

// The consumer is deleted under its worker, which recreates it and continues.
func TestConsumerDeleted(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	w := b.Work(workers.Config{}, exactly(insertEffect, nil))
	first := b.Enqueue("o-1")
	b.AwaitState(first, ledger.StateSucceeded)
	if err := b.JS.DeleteConsumer(
		b.Context(), stream.Name, stream.Durable(order.Name(), ledger.AllShards),
	); err != nil {
		t.Fatal(err)
	}
	second := b.Enqueue("o-2")
	b.AwaitState(second, ledger.StateSucceeded)
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 && w.KindStatus().InFlight == 0 })
	b.WantOneEffect(first)
	b.WantOneEffect(second)
}

// NATS loses its disk. The relay publishes unfinished tasks again; workers find the new stream.
func TestStreamWiped(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	var runs atomic.Int32
	w := b.Work(
		workers.Config{Slots: 1},
		exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			runs.Add(1)
			<-release
			return insertEffect(ctx, tx, job, args)
		}, nil),
	)
	running, unpublished := b.Enqueue("o-1"), b.Enqueue("o-2")
	b.Publish(b.History(running)[0])
	b.Await("the handler", func() bool { return runs.Load() == 1 })

	b.Server.Stop()
	if err := b.Server.Wipe(); err != nil {
		t.Fatal(err)
	}
	if err := b.Server.Restart(); err != nil {
		t.Fatal(err)
	}
	// IsConnected alone can still be of the server that was stopped.
	b.Await("NATS to answer", func() bool { return b.NC.IsConnected() && b.NC.FlushTimeout(time.Second) == nil })
	b.Provision()
	for _, k := range []ledger.Key{running, unpublished} {
		b.again(b.History(k)[0])
	}
	b.Await("adoption", func() bool { return w.KindStatus().Adopted == 1 && w.KindStatus().InFlight == 2 })
	close(release)
	for _, k := range []ledger.Key{running, unpublished} {
		b.AwaitState(k, ledger.StateSucceeded)
		b.WantOneEffect(k)
	}
	b.Await("the acknowledgements", func() bool { return b.unanswered() == 0 })
	if runs.Load() != 2 {
		t.Errorf("%d runs of 2 tasks", runs.Load())
	}
}

// A worker that starts before the stream exists waits for it, and logs that the relay creates it.
func TestStreamIsMissing(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	if err := b.JS.DeleteStream(b.Context(), stream.Name); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	b.Work(workers.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, exactly(insertEffect, nil))
	k := b.Enqueue("o-1")
	b.Await("the cure in the log", func() bool { return strings.Contains(log.String(), "run taskledger serve") })
	b.Provision()
	b.Publish(b.History(k)[0])
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// PostgreSQL is restarted under load, once gracefully and once not: every task is done once, and no attempt is used.
func TestPostgreSQLRestarted(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*bundle) func(*workers.Pool) error{
		"exactly once": func(*bundle) func(*workers.Pool) error {
			return exactly(insertEffect, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}, MaxLost: 1})
		},
		"at least once": func(*bundle) func(*workers.Pool) error {
			c := &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}, MaxLost: 1}
			return atLeast(func(context.Context, *workers.Job, orderArgs) error { return nil }, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := ledgertest.Cluster(t, nil)
			address := ledgertest.URLAs(t, cluster.URL(ledgertest.Database), ledgertest.App, "relay", "operator")
			db := try(pgxpool.New(context.Background(), address+"&pool_max_conns=12"))(t)
			t.Cleanup(db.Close)
			b := setupOn(t, db)
			b.Relay()
			w := b.Work(workers.Config{}, register(b))
			const round = 1500
			done := func() int64 { return w.KindStatus().Attempts[workers.OutcomeSucceeded] }
			for name, restart := range map[string]func() error{
				"stop": func() error { return cluster.Stop(b.Context()) },
				"kill": cluster.Kill,
			} {
				b.EnqueueRound(name, round)
				before := done()
				b.Await("work to be under way", func() bool { return done() > before })
				if err := restart(); err != nil {
					t.Fatal(err)
				}
				if err := cluster.Restart(b.Context()); err != nil {
					t.Fatal(err)
				}
				b.As("producer").Reset() // its connections have ended, too
			}
			b.AwaitSucceeded(2 * round)
			if name == "exactly once" {
				b.WantOneEffectEach(2 * round)
			}
			if n := one[int](
				b, "select count(*)::integer from taskledger.event where type in ('failed', 'buried')",
			); n != 0 {
				t.Errorf("%d failures", n)
			}
			t.Logf("attempts: %v", w.KindStatus().Attempts)
		})
	}
}
