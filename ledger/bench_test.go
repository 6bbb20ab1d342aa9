package ledger_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// BenchmarkAppendEach appends 1,000 succeeded events in one call, as workers do, and reports the cost of one event.
func BenchmarkAppendEach(b *testing.B) {
	const group = 1000
	data := json.RawMessage(`{"worker":"worker-4711-abcdefgh","started_at":"2026-11-21T12:00:00.123456789Z",` +
		`"duration_ms":0.003}`)
	pool := ledgertest.Pool(b, ledgertest.Owner)
	var bytes, allocs, wal uint64
	readLSN := func() (lsn uint64) {
		const sql = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
		if err := pool.QueryRow(b.Context(), sql).Scan(&lsn); err != nil {
			b.Fatal(err)
		}
		return lsn
	}
	events := 0
	for b.Loop() {
		b.StopTimer()
		entries := make([]ledger.Entry, group)
		requests := make([]ledger.AppendRequest, group)
		for i := range group {
			key := ledger.Key{Kind: "bench.task", BizID: ledger.BizID(fmt.Sprintf("task-%08d", events+i))}
			entries[i] = ledger.Entry{Key: key, Args: json.RawMessage(`{"customer":17,"percent":10}`)}
			requests[i] = ledger.AppendRequest{
				Key: key, Expected: 1, Type: ledger.EventSucceeded, Actor: "worker-4711-abcdefgh", Data: data,
			}
		}
		if _, err := ledger.EnqueueMany(b.Context(), pool, entries); err != nil {
			b.Fatal(err)
		}
		events += group
		before := readLSN()
		var from, to runtime.MemStats
		runtime.ReadMemStats(&from)
		b.StartTimer()
		results := ledger.AppendEach(b.Context(), pool, requests)
		b.StopTimer()
		runtime.ReadMemStats(&to)
		wal += readLSN() - before
		bytes += to.TotalAlloc - from.TotalAlloc
		allocs += to.Mallocs - from.Mallocs
		for _, r := range results {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		b.StartTimer()
	}
	n := float64(events)
	b.ReportMetric(float64(b.Elapsed().Microseconds())/n, "µs/event")
	b.ReportMetric(float64(allocs)/n, "allocs/event")
	b.ReportMetric(float64(bytes)/n, "B/event")
	b.ReportMetric(float64(wal)/n, "WAL-B/event")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkEnqueue enqueues tasks one by one, each in a transaction of its own.
func BenchmarkEnqueue(b *testing.B) {
	pool := ledgertest.Pool(b, "producer")
	args := json.RawMessage(`{"customer":17,"percent":10}`)
	for i := 0; b.Loop(); i++ {
		k := ledger.Key{Kind: "bench.task", BizID: ledger.BizID(fmt.Sprintf("task-%08d", i))}
		if _, err := ledger.Enqueue(b.Context(), pool, k, args, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReplace replaces the args of 1,000 waiting tasks in turn, each in a transaction of its own.
func BenchmarkReplace(b *testing.B) {
	pool := ledgertest.Pool(b, "producer")
	o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
	for i := 0; b.Loop(); i++ {
		k := ledger.Key{Kind: "bench.task", BizID: ledger.BizID(fmt.Sprintf("task-%03d", i%1000))}
		args := json.RawMessage(fmt.Sprintf(`{"customer":17,"percent":%d}`, i))
		if _, err := ledger.Enqueue(b.Context(), pool, k, args, o); err != nil {
			b.Fatal(err)
		}
	}
}
