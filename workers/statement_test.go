package workers_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "worker"), nil)
}

// The heads of a batch are read through the primary key, whatever the planner believes.
func TestHeadsPlan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.EnqueueMany(5000)
	b.Exec("analyze taskledger.event")
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		tx := try(b.DB.Begin(b.Context()))(t)
		defer func() { _ = tx.Rollback(b.Context()) }()
		try(tx.Exec(b.Context(), "set local plan_cache_mode = "+mode))(t)
		try(tx.Exec(b.Context(), "prepare heads as "+string(try(os.ReadFile("internal/attempt/sql/heads.sql"))(t))))(t)
		rows := try(tx.Query(b.Context(),
			`explain execute heads('test.order', '{"o-0001","o-0002"}', '{1,1}', 512)`))(t)
		plan := strings.Join(try(pgx.CollectRows(rows, pgx.RowTo[string]))(t), "\n")
		if !strings.Contains(plan, "Index Scan Backward using event_pkey") ||
			strings.Contains(plan, "Seq Scan on event") {
			t.Errorf("%s: %s", mode, plan)
		}
	}
}

// A worker works in every query mode of pgx, and so through every kind of pooler.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plantest.Settings(t, b.DB.Config().ConnString())
	b.Dispatch()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			config := b.DB.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
			t.Cleanup(db.Close)
			w := b.Work(workers.Config{DB: db}, b.exactly(misbehaveOnce, nil))
			awkward := []string{`a"b\c`, "🎫/50%:x", "{},NULL", "' or 1=1"}
			for _, id := range awkward {
				b.Enqueue(id)
			}
			b.AwaitSucceeded(len(awkward))
			b.WantOneEffectEach(len(awkward))
			for _, id := range awkward {
				b.WantOneEffect(ledger.Key{Kind: b.Kind().Name(), BizID: ledger.BizID(id)})
			}
			w.Stop()
			if n := one[int](b, "select count(*)::integer from taskledger.workers where worker = $1", w.ID()); n != 0 {
				t.Errorf("%d leases left", n)
			}
		})
	}
}
