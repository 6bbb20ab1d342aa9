package ledger_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// history inserts tasks of three events each as the owner, as fast as PostgreSQL can, in the order of their events.
func history(tb testing.TB, pool *pgxpool.Pool, tasks int) {
	tb.Helper()
	const statement = `
		with tx as materialized (select pg_current_xact_id() as xid)
		insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data)
		select tx.xid, v, least(v - 1, 1), 0, ('{enqueued,started,succeeded}'::taskledger.event_type[])[v],
		       'bench.task', 'task-' || md5(n::text), 'worker-4711-abcdefgh', '{"customer":17,"percent":10}'
		  from tx, generate_series($1::integer, $2::integer) n, generate_series(1, 3) v
		 order by (n - 1) / 1000, v, n`
	for from := 1; from <= tasks; from += 100_000 {
		if _, err := pool.Exec(tb.Context(), statement, from, min(from+99_999, tasks)); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := pool.Exec(tb.Context(), "vacuum analyze taskledger.event"); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkReplay reads 600,000 events.
func BenchmarkReplay(b *testing.B) {
	const tasks = 200_000
	pool := ledgertest.Pool(b, ledgertest.Owner)
	history(b, pool, tasks)
	for name, r := range map[string]ledger.Range{
		"all": {}, "one type": {Types: []ledger.EventType{"started"}}, "none": {Actor: "nobody"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var from, to runtime.MemStats
				runtime.ReadMemStats(&from)
				begin, n := time.Now(), 0
				for _, err := range ledger.Events(b.Context(), pool, r) {
					if n++; err != nil {
						b.Fatal(err)
					}
				}
				runtime.ReadMemStats(&to)
				b.ReportMetric(3*tasks/time.Since(begin).Seconds(), "events/s")
				b.ReportMetric(float64(to.TotalAlloc-from.TotalAlloc)/3/tasks, "B/event")
				b.ReportMetric(float64(n), "events")
			}
		})
	}
}
