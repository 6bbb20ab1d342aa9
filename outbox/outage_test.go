package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

var errOnPurpose = errors.New("rolled back on purpose")

// write enqueues and appends on several connections until stop is closed, and rolls one transaction in four
// back. mayFail allows errors, for tests that stop the database.
func (b *bundle) write(stop <-chan struct{}, mayFail bool) *sync.WaitGroup {
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("w%d-%d", w, i))}
				if err := b.writeOne(key, random.IntN(4) == 0); err != nil && !errors.Is(err, errOnPurpose) &&
					!mayFail {
					b.t.Error(err)
					return
				}
			}
		})
	}
	return &writers
}

// writeOne enqueues a task, starts it and lets it succeed, in two transactions.
func (b *bundle) writeOne(key ledger.Key, rollback bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := ledger.Enqueue(ctx, tx, key, nil, nil); err != nil || rollback {
			return errors.Join(err, errOnPurpose)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for v, typ := range []ledger.EventType{ledger.EventStarted, ledger.EventInterrupted, ledger.EventSucceeded} {
			request := ledger.AppendRequest{Key: key, Expected: ledger.Version(v + 1), Type: typ}
			if _, err := ledger.Append(ctx, tx, request); err != nil {
				return err
			}
		}
		return nil
	})
}

// NATS restarts several times while transactions commit and roll back, under two relays.
func TestNATSRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages)
	b.relay(smallPages)
	stop := make(chan struct{})
	writers := b.write(stop, false)
	for range 4 {
		published := b.published()
		b.await("the relay publishes", func() bool { return b.published() > published+200 })
		b.server.Stop()
		b.restart()
	}
	close(stop)
	writers.Wait()
	b.awaitPublished()
	b.check()
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1: the relay treated a restart as a loss", got)
	}
}

// published returns the last sequence of the stream, 0 if there is no stream.
func (b *bundle) published() uint64 {
	s, err := relays.ReadStatus(b.ctx(), b.pool, b.js, outbox.StreamConfig{})
	if err != nil {
		b.t.Fatal(err)
	}
	if s.Stream == nil {
		return 0
	}
	return s.Stream.LastSeq
}

// A relay that starts while both servers are unavailable works when they are available.
func TestServersUnavailableAtTheStart(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	b.enqueue("coupon.send", "order-", 100)
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.server.Stop()
	failures := make(chan error, 1000)
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{RelayFailed: func(_ context.Context, err error) { failures <- err }}}
	})
	<-failures
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitNote("not connected to NATS")
	b.restart()
	b.awaitPublished()
	b.check()
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// PostgreSQL is killed and restarted while transactions commit and a relay works.
func TestPostgresKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	b.relay(smallPages)
	stop := make(chan struct{})
	writers := b.write(stop, true)
	for range 3 {
		published := b.published()
		b.await("the relay publishes", func() bool { return b.published() > published+200 })
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		b.restartDatabase(server)
	}
	close(stop)
	writers.Wait()
	b.awaitPublished()
	b.check()
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
}

// The relay works in every query mode of pgx, and an idle relay stops at once.
func TestQueryModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(ledgertest.URL(t, ledgertest.App, "relay", "operator"))
			if err != nil {
				t.Fatal(err)
			}
			plantest.Settings(t, config.ConnString())
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b := newBundleOn(t, pool, natsserver.Config{})
			r := b.relay(smallPages)
			b.history()
			b.awaitPublished()
			b.operate()
			began := time.Now()
			r.end()
			if took := time.Since(began); took > patience/2 {
				t.Errorf("an idle relay took %s to stop", took)
			}
		})
	}
}

// operate executes each act of an operator.
func (b *bundle) operate() {
	b.t.Helper()
	ledgertest.ExecAsOwner(b.t, b.pool, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		values (1, 0, 0, 'enqueued', 'a..b', 'odd')`)
	isParked := func() bool { return len(b.parked()) == 1 }
	b.await("the event is parked", isParked)
	all, err := relays.ReadParked(b.ctx(), b.pool, 0, 10)
	if err != nil || len(all) != 1 {
		b.t.Fatalf("parked: %+v, %v", all, err)
	}
	positions := []ledger.Position{all[0].Position}
	if err := relays.RetryParked(b.ctx(), b.pool, positions, "alice", "it's \\ odd"); err != nil {
		b.t.Fatal(err)
	}
	b.await("the event is parked again", isParked)
	if err := relays.DiscardParked(b.ctx(), b.pool, positions, "", ""); err != nil {
		b.t.Fatal(err)
	}
	if err := relays.RebuildStream(b.ctx(), b.pool, b.js, nil); err != nil {
		b.t.Fatal(err)
	}
	b.await("another generation", func() bool { return b.generation() == 2 })
	if d, err := relays.ReadStream(b.ctx(), b.pool, b.js, outbox.StreamConfig{}); err != nil || !d.IsOwn {
		b.t.Errorf("stream: %+v, %v", d, err)
	}
}
