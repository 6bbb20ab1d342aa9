// Package plantest tests the query plans of statements on a large ledger. PostgreSQL plans by
// statistics, so it needs the statistics of a large ledger and not its rows.
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

// Pool returns a pool to the database of another pool and closes it at the end of the test. It fails the
// test if PostgreSQL compiles a plan (JIT). That takes longer than a statement of a service, and happens
// at every execution of a plan whose estimated cost is high.
//
// It also fails the test if no plan was logged. Every connection executes settings, which is SQL. The
// user of both pools must be a superuser.
func Pool(t testing.TB, like *pgxpool.Pool, settings string) *pgxpool.Pool {
	t.Helper()
	var plans, compiled atomic.Int32
	config := like.Config()
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "plan:") {
			plans.Add(1)
		}
		if strings.Contains(n.Message, "JIT:") && compiled.Add(1) == 1 {
			t.Errorf("a plan was compiled:\n%s", n.Message)
		}
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `load 'auto_explain'; set auto_explain.log_min_duration = 0;
			set auto_explain.log_analyze = on; set auto_explain.log_nested_statements = on;
			set jit = on; set client_min_messages = log;`+settings)
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
			t.Error("no plan was logged")
		}
	})
	return pool
}

// Enlarge sets the statistics of the tables that grow with the history to 2,000,000 rows on each page,
// thousands of times the real number. The tables must be empty and without statistics.
func Enlarge(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	tag, err := db.Exec(t.Context(), `
		with history as (
		  select unnest(array['taskledger.event', 'taskledger.task', 'taskledger.timer',
		                      'taskledger.task_tag', 'taskledger.seal']::regclass[]) as oid
		)
		update pg_class set relpages = 1, reltuples = 2000000
		 where oid in (select oid from history
		                union all
		               select indexrelid from pg_index where indrelid in (select oid from history))`)
	if err != nil {
		t.Fatal(err)
	}
	if tag.RowsAffected() < 6 {
		t.Fatalf("%d tables and indexes were enlarged, want at least 6", tag.RowsAffected())
	}
}

// Blocks returns how many blocks of tables and indexes a statement reads. It executes the statement after
// setup, if that is not nil, in a transaction that it rolls back. The plan is the generic one, which
// does not depend on the parameters, as after some uses of a prepared statement.
//
// It returns the least of several executions. EXPLAIN also counts the blocks of the catalog that an execution reads
// after another session has invalidated a cache, as autovacuum does.
func Blocks(t testing.TB, db *pgxpool.Pool, setup func(pgx.Tx), sql string, args ...any) int {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "prepare measured as "+sql); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.Exec(context.Background(), "deallocate measured") }()
	explain := "explain (analyze, buffers, format json) execute measured" + literals(args)
	least := blocks(t, conn, setup, explain)
	for range 4 {
		least = min(least, blocks(t, conn, setup, explain))
	}
	return least
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

// literals returns parameters as SQL literals, because EXECUTE does not accept protocol parameters.
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
