package metrics_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/metrics"
)

// The statements of a report, which status, /readyz and a scrape read, and those that a scrape adds have an estimated
// cost below that of JIT compilation, with and without subscribers beside 30,000 events that nothing has read and
// 100 kinds without workers. After some uses PostgreSQL may plan a statement without its parameters.
func TestNoPlanOfAReportIsCompiled(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	db := plantest.Pool(t, owner, "")
	collector, err := metrics.NewLedger(metrics.LedgerConfig{
		DB: db, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Report: func(ctx context.Context) (health.Report, error) {
			return health.Read(ctx, health.Config{DB: db, Alarms: alarm.ReadUndelivered})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.event (kind, biz_id, version, type, shard, attempt, data)
		select 'coupon.send', n::text, 1, 'enqueued', 0, 0, '{}' from generate_series(1, 30000) n;
		insert into taskledger.task
		       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at)
		select 'waiting.' || n % 100, n::text, 0, 'available', null, 1, 0, 0, now(), now()
		  from generate_series(1, 150000) n;
		insert into taskledger.task_count (kind, state, n, value)
		select t.kind, t.state, 1, count(*) from taskledger.task t group by t.kind, t.state;
		analyze`)
	for i := range 20 {
		if i == 10 {
			ledgertest.ExecAsOwner(t, owner, `select taskledger.seek_feed('audit', 0)`)
		}
		scrape(t, collector)
	}
}
