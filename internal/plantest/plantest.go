// Package plantest shows a test the plans that its statements have on a ledger that is large. Plans are
// made from statistics, so statistics of a large ledger are enough.
package plantest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool returns a pool to the database of another one. The test fails at the first plan that is
// compiled: PostgreSQL does that with plans that seem dear, at every execution, and it takes longer
// than a statement of ours. It fails as well if no plan was seen. Connections begin with settings,
// which are SQL. Both pools must be a superuser's. The new one is closed after the test.
func Pool(t testing.TB, like *pgxpool.Pool, settings string) *pgxpool.Pool {
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
	t.Cleanup(func() {
		pool.Close()
		t.Logf("%d plans", plans.Load())
		if plans.Load() == 0 {
			t.Error("no plan was seen")
		}
	})
	return pool
}

// Enlarge has PostgreSQL believe that the tables which grow with the history hold 2,000,000 rows on each
// page, thousands of times what they do. It must know nothing of them yet, and they must be empty.
func Enlarge(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	tag, err := db.Exec(t.Context(), `
		with grown as (select unnest(array['taskledger.event', 'taskledger.task', 'taskledger.timer']::regclass[]) as oid)
		update pg_class set relpages = 1, reltuples = 2000000
		 where oid in (select oid from grown union all select indexrelid from pg_index where indrelid in (select oid from grown))`)
	if err != nil {
		t.Fatal(err)
	}
	if tag.RowsAffected() < 6 {
		t.Fatalf("%d tables and indexes were enlarged", tag.RowsAffected())
	}
}

// Blocks returns how many blocks of tables and indexes a statement touches in a transaction after
// setup (nil: nothing), which is rolled back. Its plan is the generic one, made without the parameters,
// which a prepared statement has that was used some times.
func Blocks(t testing.TB, db *pgxpool.Pool, setup func(pgx.Tx), sql string, args ...any) int {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "prepare looked_at as "+sql); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.Exec(context.Background(), "deallocate looked_at") }()
	explain := "explain (analyze, buffers, format json) execute looked_at" + literals(args)
	blocks(t, conn, setup, explain) // the first one loads what the second one finds
	return blocks(t, conn, setup, explain)
}

func blocks(t testing.TB, conn *pgxpool.Conn, setup func(pgx.Tx), explain string) int {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if setup != nil {
		setup(tx)
	}
	if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	var text []byte
	if err := tx.QueryRow(t.Context(), explain).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// literals are parameters in SQL: EXECUTE takes none from the protocol.
func literals(args []any) string {
	if len(args) == 0 {
		return ""
	}
	all := make([]string, len(args))
	for i, a := range args {
		all[i] = "'" + strings.ReplaceAll(fmt.Sprint(a), "'", "''") + "'"
	}
	return " (" + strings.Join(all, ", ") + ")"
}
