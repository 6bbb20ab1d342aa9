package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// BenchmarkDrainAtLeastOnce measures how fast a backlog is drained by a handler that does nothing: offer, handler,
// success recorded.
func BenchmarkDrainAtLeastOnce(b *testing.B) {
	world := setupOn(b, durablePool(b))
	drain(b, world, 130_000, world.atLeast(
		func(context.Context, *workers.Job, orderArgs) error { return nil }, &workers.KindConfig{Slots: 500}))
}

// BenchmarkDrainExactlyOnce is the same with a handler that inserts one row in its transaction.
func BenchmarkDrainExactlyOnce(b *testing.B) {
	world := setupOn(b, durablePool(b))
	drain(b, world, 30_000, world.exactly(insertEffect, &workers.KindConfig{Slots: 16}))
}

// drain drains a backlog of n tasks per iteration and reports tasks per second.
func drain(b *testing.B, world *bundle, n int, register func(*workers.Pool) error) {
	world.Dispatch()
	var took time.Duration
	var before, after runtime.MemStats
	var allocs, bytes uint64
	for round := range b.N {
		world.backlog(round, n, order)
		runtime.GC()
		runtime.ReadMemStats(&before)
		w, t := world.workOff(n, workers.Config{}, register)
		took += t
		runtime.ReadMemStats(&after)
		allocs += after.Mallocs - before.Mallocs
		bytes += after.TotalAlloc - before.TotalAlloc
		w.Stop()
	}
	if done := one[int](
		world, "select count(*)::integer from taskledger.event where type = 'succeeded'",
	); done != b.N*n {
		b.Fatalf("%d tasks succeeded, want %d", done, b.N*n)
	}
	tasks := float64(b.N * n)
	b.ReportMetric(tasks/took.Seconds(), "tasks/s")
	b.ReportMetric(float64(allocs)/tasks, "allocs/task") // including the servers in this process
	b.ReportMetric(float64(bytes)/tasks, "B/task")
	b.ReportMetric(0, "ns/op")
}

// workOff runs a worker until n tasks have succeeded, and returns how long that took.
func (b *bundle) workOff(n int, c workers.Config, register func(*workers.Pool) error) (*worker, time.Duration) {
	b.T.Helper()
	begun := time.Now()
	c.NATS, c.Logger, c.LeaseTTL = nil, slog.New(slog.DiscardHandler), 30*time.Second
	w := b.Work(c, register)
	for w.KindStatus().Attempts[workers.OutcomeSucceeded] < int64(n) {
		if b.T.Failed() {
			b.T.FailNow() // the worker has ended
		}
		time.Sleep(time.Millisecond)
	}
	return w, time.Since(begun)
}

// durablePool returns a pool whose commits are synced, unlike other pools in tests.
func durablePool(b *testing.B) *pgxpool.Pool {
	b.Setenv("TMPDIR", os.TempDir()) // on a disk, not in memory
	synced := map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
	server := ledgertest.Cluster(b, synced)
	config := try(pgxpool.ParseConfig(server.URL(ledgertest.Database)))(b)
	config.MaxConns = 24
	pool := try(pgxpool.NewWithConfig(context.Background(), config))(b)
	b.Cleanup(pool.Close)
	return pool
}

// backlog enqueues n tasks, of these kinds in turn.
func (b *bundle) backlog(round, n int, kinds ...ledger.TypedKind[orderArgs]) {
	b.T.Helper()
	const page = 5000
	var entries []ledger.Entry
	for i := range n {
		id := ledger.BizID(fmt.Sprintf("%d-%07d", round, i))
		entries = append(entries, try(kinds[i%len(kinds)].Entry(id, orderArgs{Amount: i}, nil))(b.T))
		if len(entries) == page || i == n-1 {
			try(ledger.EnqueueMany(context.Background(), b.DB, entries))(b.T)
			entries = entries[:0]
		}
	}
}

// BenchmarkLatency measures the time from a commit to its handler, at a rate that leaves everything idle.
func BenchmarkLatency(b *testing.B) {
	world := setup(b)
	world.Dispatch()
	var committed sync.Map
	took := make(chan time.Duration, 1)
	world.Work(
		workers.Config{Logger: slog.New(slog.DiscardHandler)},
		world.exactly(func(_ context.Context, _ pgx.Tx, job *workers.Job, _ orderArgs) error {
			at, _ := committed.Load(job.BizID)
			took <- time.Since(at.(time.Time))
			return nil
		}, nil),
	)
	var all []time.Duration
	for i := range b.N {
		k := world.Enqueue("o-" + strconv.Itoa(i))
		committed.Store(k.BizID, time.Now())
		all = append(all, <-took)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}
