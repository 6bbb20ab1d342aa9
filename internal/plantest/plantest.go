// Package plantest shows a test the plans that its statements have on a ledger that is large. Plans are
// made from statistics, so statistics of a large ledger are enough.
package plantest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool returns a pool to the database of another one, and what tells how many plans it has shown. The
// test fails at the first one that is compiled: PostgreSQL does that with plans that seem dear, at
// every execution, and it takes longer than a statement of ours. Connections begin with settings,
// which are SQL. Both pools must be a superuser's. The new one is closed after the test.
func Pool(t testing.TB, like *pgxpool.Pool, settings string) (_ *pgxpool.Pool, shown func() int) {
	t.Helper()
	var plans, compiled atomic.Int32
	config := like.Config()
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
			set auto_explain.log_nested_statements = on; set jit = on; set client_min_messages = log;`+settings)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, func() int { return int(plans.Load()) }
}

// Enlarge has PostgreSQL believe that the tables which grow with the history hold 2,000,000 rows on each
// page, thousands of times what they do. It must know nothing of them yet, and they must be empty.
func Enlarge(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	tag, err := db.Exec(t.Context(), `
		update pg_class set relpages = 1, reltuples = 2000000
		 where oid in ('taskledger.event'::regclass, 'taskledger.task'::regclass, 'taskledger.timer'::regclass)
		    or oid in (select i.indexrelid from pg_index i
		                where i.indrelid in ('taskledger.event'::regclass, 'taskledger.task'::regclass, 'taskledger.timer'::regclass))`)
	if err != nil {
		t.Fatal(err)
	}
	if tag.RowsAffected() < 6 {
		t.Fatalf("%d tables and indexes were enlarged", tag.RowsAffected())
	}
}
