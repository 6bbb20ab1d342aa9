package projector_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// BenchmarkProjector applies 100,000 committed events, a thousand at a time: 50,000 tasks that were enqueued
// and have succeeded.
func BenchmarkProjector(b *testing.B) {
	const tasks, group = 50_000, 1000
	var from, to runtime.MemStats
	for b.Loop() {
		b.StopTimer()
		pool := ledgertest.Pool(b, ledgertest.Owner)
		for i := range tasks / group {
			enqueueAndSucceed(b, pool, i*group, group)
		}
		if _, err := pool.Exec(b.Context(), "vacuum analyze taskledger.event"); err != nil {
			b.Fatal(err)
		}
		runtime.ReadMemStats(&from)
		b.StartTimer()
		start := time.Now()
		project(b, pool)
		b.ReportMetric(2*tasks/time.Since(start).Seconds(), "events/s")
		runtime.ReadMemStats(&to)
		b.ReportMetric(float64(to.Mallocs-from.Mallocs)/(2*tasks), "allocs/event") // includes reading the page
		b.ReportMetric(float64(to.TotalAlloc-from.TotalAlloc)/(2*tasks), "B/event")
	}
}

// project runs a projector until it has applied everything.
func project(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	p, err := projector.New(projector.Config{DB: pool})
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	awaitCaughtUp(tb, pool)
	cancel()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

// applyAll applies every committed event, page by page.
func applyAll(tb testing.TB, pool *pgxpool.Pool, p *projector.Runner) {
	tb.Helper()
	reader, err := feed.Open(tb.Context(), pool, feed.ProjectorReader, &feed.Options{PageSize: projector.PageSize(p)})
	if err != nil {
		tb.Fatal(err)
	}
	for {
		page, ok, err := reader.Poll(tb.Context())
		if err == nil && ok {
			err = projector.ApplyPage(tb.Context(), p, page)
		}
		if err != nil {
			tb.Fatal(err)
		}
		if !ok {
			return
		}
	}
}

func enqueueAndSucceed(tb testing.TB, pool *pgxpool.Pool, first, n int) {
	tb.Helper()
	enqueueAndFinish(tb, pool, first, n, false)
}

// enqueueAndFinish enqueues n tasks, with or without a cause, and appends their succeeded events.
func enqueueAndFinish(tb testing.TB, pool *pgxpool.Pool, first, n int, led bool) {
	tb.Helper()
	entries := make([]ledger.Entry, n)
	finish := make([]ledger.AppendRequest, n)
	for i := range n {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%08d", first+i))}
		entries[i] = ledger.Entry{Key: key, Args: json.RawMessage(`{"customer":17,"percent":10}`)}
		if led {
			entries[i].Options = &ledger.EnqueueOptions{Meta: ledger.Meta{Causation: "order.place/" +
				string(key.BizID) + "/1@1"}}
		}
		finish[i] = ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded,
			Data: json.RawMessage(`{"duration_ms":3}`)}
	}
	if _, err := ledger.EnqueueMany(tb.Context(), pool, entries); err != nil {
		tb.Fatal(err)
	}
	for _, r := range ledger.AppendEach(tb.Context(), pool, finish) {
		if r.Err != nil {
			tb.Fatal(r.Err)
		}
	}
}

var (
	rebuildTasksFlag = flag.Int("rebuild-tasks", 500_000, "number of tasks in BenchmarkRebuild")
	rebuildWriters   = flag.Bool("rebuild-writers", false, "BenchmarkRebuild has writers and a runner beside it")
)

// BenchmarkRebuild rebuilds the built-in projection from a million events: 500,000 tasks that have succeeded. A reader
// reads the table in use meanwhile, and measures how long the swap keeps it waiting.
func BenchmarkRebuild(b *testing.B) {
	tasks := *rebuildTasksFlag
	pool := ledgertest.Pool(b, ledgertest.Owner)
	fillHistory(b, pool, tasks)
	stop := func() {}
	if *rebuildWriters {
		rebuildTasks(b, pool) // a runner that began at the first event would be far behind
		stop = writeMeanwhile(b, pool)
	}
	longest := readMeanwhile(b, pool)
	for b.Loop() {
		start := time.Now()
		if err := projector.RebuildTasks(b.Context(), pool, nil); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(2*float64(tasks)/time.Since(start).Seconds(), "events/s")
	}
	b.ReportMetric(longest().Seconds()*1000, "ms/longest-read")
	stop()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.Sys)/(1<<20), "MiB")
	start := time.Now()
	report, err := projector.Verify(b.Context(), pool, nil)
	if err != nil || !report.Equal() || report.Tasks < int64(tasks) {
		b.Fatalf("%+v, %v", report, err)
	}
	b.ReportMetric(float64(report.Events)/time.Since(start).Seconds(), "verified/s")
}

// writeMeanwhile runs a projector, and enqueues tasks and appends their succeeded events until it is stopped.
func writeMeanwhile(tb testing.TB, pool *pgxpool.Pool) (stop func()) {
	tb.Helper()
	stopRunner := start(tb, projector.Config{DB: pool})
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for first := 500_000_000; ; first += 20 {
			select {
			case <-stopped:
				return
			default:
				enqueueAndSucceed(tb, pool, first, 20)
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
		awaitCaughtUp(tb, pool)
		stopRunner()
	}
}

// readMeanwhile reads a task again and again until the longest time of a read is asked for.
func readMeanwhile(tb testing.TB, pool *pgxpool.Pool) (longest func() time.Duration) {
	tb.Helper()
	stop, answer := make(chan struct{}), make(chan time.Duration)
	go func() {
		longest := time.Duration(0)
		for {
			select {
			case <-stop:
				answer <- longest
				return
			default:
			}
			start := time.Now()
			if _, err := pool.Exec(context.Background(), "select from taskledger.task limit 1"); err != nil {
				tb.Error(err)
			}
			longest = max(longest, time.Since(start))
			time.Sleep(time.Millisecond)
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-answer
	}
}

// fillHistory inserts tasks that have succeeded, as fast as PostgreSQL can.
func fillHistory(tb testing.TB, pool *pgxpool.Pool, tasks int) {
	tb.Helper()
	for _, event := range []struct{ columns, data string }{
		{"1, 0, 'enqueued'", `{"customer":17,"percent":10}`},
		{"2, 1, 'succeeded'", `{"worker":"w-1","started_at":"2026-11-22T10:00:00.123456Z","duration_ms":3.25}`},
	} {
		_, err := pool.Exec(tb.Context(), fmt.Sprintf(`
			insert into taskledger.event (version, attempt, type, shard, kind, biz_id, actor, data)
			select %s, i %% 64, 'coupon.send', 'order-' || lpad(i::text, 9, '0'), 'shop', '%s'
			  from generate_series(1, %d) i`, event.columns, event.data, tasks))
		if err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := pool.Exec(tb.Context(), "vacuum analyze taskledger.event"); err != nil {
		tb.Fatal(err)
	}
}
