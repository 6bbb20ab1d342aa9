package workers_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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
