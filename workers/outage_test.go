package workers_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// PostgreSQL is restarted under load, once gracefully and once not: every task is done once, and no attempt is used.
func TestPostgreSQLRestarted(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*bundle) func(*workers.Pool) error{
		"exactly once": func(b *bundle) func(*workers.Pool) error {
			return b.exactly(insertEffect, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}, MaxLost: 1})
		},
		"at least once": func(b *bundle) func(*workers.Pool) error {
			c := &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}, MaxLost: 1}
			return b.atLeast(func(context.Context, *workers.Job, orderArgs) error { return nil }, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := ledgertest.Cluster(t, nil)
			address := ledgertest.URLAs(t, cluster.URL(ledgertest.Database), ledgertest.App, "relay", "operator")
			db := try(pgxpool.New(context.Background(), address+"&pool_max_conns=12"))(t)
			t.Cleanup(db.Close)
			b := setupOn(t, db)
			b.Dispatch()
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
				b.DB.Reset() // its connections have ended, too
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

// NATS stands still until its connection takes no more. Running handlers end, and their outcomes are recorded.
func TestOutcomesWhileNATSStandsStill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	freezer, address := servicetest.NewFreezingProxy(t, b.Server.URL())
	nc := try(stream.Connect(address, nats.ReconnectWait(20*time.Millisecond)))(t)
	t.Cleanup(nc.Close)
	const tasks = 60
	running, goOn := make(chan struct{}, tasks), make(chan struct{})
	b.Work(workers.Config{NATS: nc, LeaseTTL: endless}, func(p *workers.Pool) error {
		p.TalkByNATS()
		for i := range tasks { // of a kind each, so that the end of each makes a report due
			kind := ledger.MustKind[int](ledger.Kind(fmt.Sprint("test.kind", i)))
			h := func(context.Context, *workers.Job, int) error {
				running <- struct{}{}
				<-goOn
				return nil
			}
			if err := p.Register(workers.Handle(kind, h, &workers.KindConfig{Slots: 1})); err != nil {
				return err
			}
			try(kind.Enqueue(b.Context(), b.DB, "x", i, nil))(t)
		}
		return nil
	})
	for range tasks {
		<-running
	}
	freezer.Freeze()
	var published atomic.Int64
	failed := make(chan error, 1)
	go func() {
		for {
			if err := nc.Publish("noise", make([]byte, 32<<10)); err != nil {
				failed <- err
				return
			}
			published.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	ended := 0
	b.Await("the connection to be full", func() bool {
		if ended < tasks-10 {
			goOn <- struct{}{}
			ended++
		}
		before := published.Load()
		time.Sleep(5 * time.Millisecond)
		return ended == tasks-10 && published.Load() == before
	})
	close(goOn)
	b.AwaitSucceeded(tasks)
	select {
	case err := <-failed:
		t.Errorf("first the connection was given up: %v", err)
	default:
	}
	freezer.Thaw()
}
