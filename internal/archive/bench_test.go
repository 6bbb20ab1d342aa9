package archive_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// benchmarkTasks is the number of tasks, of two events each, that BenchmarkArchive exports, verifies and imports:
// go test ./internal/archive -run '^$' -bench . -benchtime 1x.
const benchmarkTasks = 250_000

// BenchmarkArchive reports the rates of sealed events, the bytes of a task, the memory of the export, and the time of a
// task's history.
func BenchmarkArchive(b *testing.B) {
	app := ledgertest.Pool(b)
	owner, reader := ledgertest.As(b, app, ledgertest.Owner), ledgertest.As(b, app, "reader")
	for version, eventType := range []string{"enqueued", "succeeded"} {
		_, err := owner.Exec(b.Context(), `
			insert into taskledger.event (version, attempt, type, shard, kind, biz_id, data, actor)
			select $1::integer, $1::integer - 1, $2::text::taskledger.event_type, i % 64, 'coupon.send',
			       md5(i::text)::uuid::text, case $1::integer when 1 then '{"percent":10}'::json end, 'shop'
			  from generate_series(1, $3::integer) i`, version+1, eventType, benchmarkTasks)
		if err != nil {
			b.Fatal(err)
		}
	}
	if _, err := seal.Run(b.Context(), ledgertest.As(b, app, "archiver"), nil); err != nil {
		b.Fatal(err)
	}
	const events = 2 * benchmarkTasks
	rate := func(f func()) float64 {
		began := time.Now()
		f()
		return events / time.Since(began).Seconds()
	}
	dir := archive.Directory(b.TempDir())
	var m archive.Manifest
	var err error
	var most atomic.Uint64
	b.ReportMetric(rate(func() {
		m, err = archive.Export(b.Context(), reader, dir, &archive.ExportOptions{
			Progress: func(_, _, _ ledger.Position) {
				var s runtime.MemStats
				runtime.ReadMemStats(&s)
				most.Store(max(most.Load(), s.HeapInuse))
			},
		})
	}), "exported/s")
	if err != nil || m.Events != events {
		b.Fatal(m.Events, err)
	}
	b.ReportMetric(float64(most.Load())/(1<<20), "MB")
	bytes := int64(0)
	for _, s := range m.Segments {
		bytes += s.Bytes
	}
	b.ReportMetric(float64(bytes)/benchmarkTasks, "B/task")
	index := int64(0)
	for _, p := range m.Index {
		index += p.Bytes
	}
	b.ReportMetric(float64(index)/benchmarkTasks, "index-B/task")
	b.ReportMetric(rate(func() {
		if r, err := archive.Verify(b.Context(), dir, nil); err != nil || r.Proved != events {
			b.Fatal(r, err)
		}
	}), "verified/s")
	r, err := archive.Open(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	key := ledger.Key{Kind: "coupon.send", BizID: "c4ca4238-a0b9-2382-0dcc-509a6f75849b"} // of task 1
	began := time.Now()
	const times = 100
	for range times {
		if h, err := r.History(b.Context(), key); err != nil || len(h) != 2 {
			b.Fatal(h, err)
		}
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/times, "µs/history")
	target := ledgertest.As(b, ledgertest.Pool(b), ledgertest.Owner)
	b.ReportMetric(rate(func() {
		if done, err := archive.Import(b.Context(), target, dir, nil); err != nil || done.Events != events {
			b.Fatal(done, err)
		}
	}), "imported/s")
}
