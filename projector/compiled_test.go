package projector_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// A plan that seems dear is compiled by PostgreSQL, at every execution and for longer than our
// statements take. Sequential scans are forbidden in the projector's transaction by making them seem
// dear, and plans that are made there may be used elsewhere: here they are forbidden everywhere.
func TestNoPlanIsCompiled(t *testing.T) {
	t.Parallel()
	plain := ledgertest.Pool(t)
	config := plain.Config()
	var plans, compiled atomic.Int32
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "plan:") {
			plans.Add(1)
		}
		if strings.Contains(n.Message, "JIT:") && compiled.Add(1) == 1 {
			t.Errorf("a plan is compiled:\n%s", n.Message)
		}
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on;
			set auto_explain.log_nested_statements = on; set jit = on; set enable_seqscan = off; set client_min_messages = log`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	enqueueAndSucceed(t, plain, 0, 100)
	p, err := projector.New(projector.Config{DB: pool, PageSize: 20})
	if err != nil {
		t.Fatal(err)
	}
	applyAll(t, pool, p)
	if plans.Load() == 0 {
		t.Error("no plan was shown")
	}
	t.Logf("%d plans", plans.Load())
}
