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

// NATS is away for longer than AckWait while a handler runs: its message comes again, to
// whichever worker, and the work goes on undisturbed.
func TestNATSOutageUnderARunningHandler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
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
	first, second := b.work(workers.Config{}, handler), b.work(workers.Config{}, handler)
	k := b.enqueue("o-1")
	b.awaitState(k, ledger.StateRunning)
	b.server.Stop()
	lease := one[time.Time](b, "select min(alive_until) from taskledger.lease")
	b.await("twice AckWait to pass", func() bool {
		return one[time.Time](b, "select min(alive_until) from taskledger.lease").After(lease.Add(2 * ackWait))
	})
	if err := b.server.Restart(); err != nil {
		t.Fatal(err)
	}
	b.await("the redelivery", func() bool { return first.status().Redelivered+second.status().Redelivered > 0 })
	close(release)
	b.awaitState(k, ledger.StateSucceeded)
	b.await("the acknowledgement", func() bool { return b.unanswered() == 0 })
	b.oneEffect(k)
	if runs.Load() != 1 {
		t.Errorf("the handler ran %d times", runs.Load())
	}
	if n := first.status().TakenOver + second.status().TakenOver; n != 0 {
		t.Errorf("healthy work was taken over %d times", n)
	}
}

// The consumer is deleted under its worker, which makes another one and goes on.
func TestConsumerDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	w := b.work(workers.Config{}, exactly(insertEffect, nil))
	first := b.enqueue("o-1")
	b.awaitState(first, ledger.StateSucceeded)
	if err := b.js.DeleteConsumer(b.context(), stream.Name, stream.Durable(order.Name(), ledger.AllShards)); err != nil {
		t.Fatal(err)
	}
	second := b.enqueue("o-2")
	b.awaitState(second, ledger.StateSucceeded)
	b.await("the acknowledgements", func() bool { return b.unanswered() == 0 && w.status().InFlight == 0 })
	b.oneEffect(first)
	b.oneEffect(second)
}

// NATS loses its disk. The relay publishes again what is unfinished; workers find the new stream.
func TestStreamWiped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	var runs atomic.Int32
	w := b.work(workers.Config{Slots: 1}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		runs.Add(1)
		<-release
		return insertEffect(ctx, tx, job, args)
	}, nil))
	running, unpublished := b.enqueue("o-1"), b.enqueue("o-2")
	b.publish(b.history(running)[0])
	b.await("the handler", func() bool { return runs.Load() == 1 })

	b.server.Stop()
	if err := b.server.Wipe(); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Restart(); err != nil {
		t.Fatal(err)
	}
	b.await("the connection", b.nc.IsConnected)
	b.provision()
	for _, k := range []ledger.Key{running, unpublished} {
		b.again(b.history(k)[0])
	}
	b.await("adoption", func() bool { return w.status().Adopted == 1 && w.status().InFlight == 2 })
	close(release)
	for _, k := range []ledger.Key{running, unpublished} {
		b.awaitState(k, ledger.StateSucceeded)
		b.oneEffect(k)
	}
	b.await("the acknowledgements", func() bool { return b.unanswered() == 0 })
	if runs.Load() != 2 {
		t.Errorf("%d runs of 2 tasks", runs.Load())
	}
}

// A worker that starts before there is a stream waits for it, and says who makes it.
func TestStreamIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.js.DeleteStream(b.context(), stream.Name); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	b.work(workers.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, exactly(insertEffect, nil))
	k := b.enqueue("o-1")
	b.await("the cure in the log", func() bool { return strings.Contains(log.String(), "run: taskledger serve") })
	b.provision()
	b.publish(b.history(k)[0])
	b.awaitState(k, ledger.StateSucceeded)
	b.oneEffect(k)
}

// PostgreSQL is restarted under running work, once in order and once not: everything is done
// once, and no attempt is used up.
func TestPostgreSQLRestarted(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*bundle) func(*workers.Pool) error{
		"exactly once": func(*bundle) func(*workers.Pool) error {
			return exactly(insertEffect, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}, MaxLost: 1})
		},
		"at least once": func(*bundle) func(*workers.Pool) error {
			return atLeast(func(context.Context, *workers.Job, orderArgs) error { return nil }, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}, MaxLost: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := ledgertest.Cluster(t, nil)
			db := try(pgxpool.New(context.Background(), cluster.URL(ledgertest.Database)+"&pool_max_conns=12"))(t)
			t.Cleanup(db.Close)
			b := setupOn(t, db)
			b.relay()
			w := b.work(workers.Config{}, register(b))
			const round = 1500
			done := func() int64 { return w.status().Attempts[workers.OutcomeSucceeded] }
			for name, restart := range map[string]func() error{
				"stop": func() error { return cluster.Stop(b.context()) },
				"kill": cluster.Kill,
			} {
				b.enqueueRound(name, round)
				before := done()
				b.await("work to be under way", func() bool { return done() > before })
				if err := restart(); err != nil {
					t.Fatal(err)
				}
				if err := cluster.Restart(b.context()); err != nil {
					t.Fatal(err)
				}
			}
			b.allDone(2 * round)
			if name == "exactly once" {
				b.eachOnce(2 * round)
			}
			if n := one[int](b, "select count(*)::integer from taskledger.event where type in ('failed', 'buried')"); n != 0 {
				t.Errorf("%d failures", n)
			}
			t.Logf("attempts: %v", w.status().Attempts)
		})
	}
}
