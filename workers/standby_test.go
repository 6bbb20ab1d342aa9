package workers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// A worker's URL has two hosts, and the primary refuses some of its connections, so they reach a standby that lags. The
// worker takes no task that the standby does not have for a ghost, and connects again.
func TestPoolLeavesAStandby(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	standby, err := server.Standby(t.Context())
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err) // binaries without client tools
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Close() })
	b := setupOn(t, try(pgxpool.New(t.Context(), server.URL(ledgertest.Database)))(t))
	t.Cleanup(b.DB.Close)
	onStandby := try(pgx.Connect(t.Context(), standby.URL(ledgertest.Database)))(t)
	defer onStandby.Close(context.WithoutCancel(t.Context()))
	b.Await("the standby to have the schema", func() bool {
		_, err := onStandby.Exec(t.Context(), "select from effect")
		return err == nil
	})
	if _, err := onStandby.Exec(t.Context(), "select pg_wal_replay_pause()"); err != nil {
		t.Fatal(err)
	}
	b.Dispatch()

	mixed := try(pgxpool.ParseConfig(server.URL(ledgertest.Database)))(t)
	there := try(pgx.ParseConfig(standby.URL(ledgertest.Database)))(t)
	var divert, diverted atomic.Int32
	mixed.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if divert.Add(-1) >= 0 {
			diverted.Add(1)
			c.Host, c.Port, c.Password, c.Fallbacks = there.Host, there.Port, there.Password, nil
		}
		return nil
	}
	mixed.MaxConns = 12
	db := try(pgxpool.NewWithConfig(t.Context(), mixed))(t)
	t.Cleanup(db.Close)
	w := b.Work(workers.Config{DB: db}, b.exactly(insertEffect, &workers.KindConfig{Slots: 8}))
	b.Await("the worker's lease", func() bool { return one[int](b, "select count(*) from taskledger.workers") > 0 })
	divert.Store(5)
	db.Reset()
	b.EnqueueMany(30)
	b.AwaitSucceeded(30)
	b.WantOneEffectEach(30)
	if n := w.KindStatus().Ghosts; n > 0 {
		t.Errorf("%d messages were refused as ghosts", n)
	}
	if diverted.Load() == 0 {
		t.Error("no connection reached the standby: this proves nothing")
	}
}
