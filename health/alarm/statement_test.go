package alarm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/health/alarm"
	"github.com/taskledger/taskledger/ledger"
)

// Every statement is a file, is embedded, and is one that the schema knows.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) != len(alarm.Statements) {
		t.Errorf("%d files, %d statements, %v", len(files), len(alarm.Statements), err)
	}
	conn, err := b.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		text, err := os.ReadFile(file)
		if err != nil || string(text) != alarm.Statements[name] {
			t.Errorf("%s is not embedded: %v", name, err)
		}
		if _, err := conn.Conn().Prepare(t.Context(), name, alarm.Statements[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Finding alarms costs the same behind any number of them, and a page of waiting tasks behind any
// number of tasks.
func TestPlans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, receiver := range []string{"hook", "ops"} {
		b.die(string(alarm.Kind), receiver+"/0", 20_000, "")
	}
	b.exec("analyze taskledger.event")
	b.exec("analyze taskledger.task")
	for statement, arguments := range map[string]string{
		"newest": "('taskledger.alarm', 'ops')", "list": "('taskledger.alarm', 10)", "waiting": "('taskledger.alarm', 'hook/01', 100)",
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			tx, err := b.db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			for _, sql := range []string{"set local plan_cache_mode = " + mode, "prepare " + statement + "_" + mode + " as " + alarm.Statements[statement]} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := tx.Query(t.Context(), "explain (analyze, costs off, timing off) execute "+statement+"_"+mode+arguments)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			plan := strings.Join(lines, "\n")
			if err != nil || strings.Contains(plan, "Seq Scan on") || strings.Contains(plan, "Sort Method: external") || strings.Contains(plan, "rows=20000 ") {
				t.Errorf("%s, %s: %v\n%s", statement, mode, err, plan)
			}
		}
	}
}

// A watcher works in every query mode of pgx, and so through every kind of pooler.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b, h := setup(t), newHook(t)
			h.answer(500)
			config := b.db.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(db.Close)
			b.die("coupon.send", `a"b\c`, 1, "out of coupons")
			c := b.config(h.receiver("hook"))
			c.DB = db
			c.Rules.Kinds = []alarm.KindRule{{Kind: "mail.send", WaitingOver: 1}}
			b.exec("insert into taskledger.event (version, attempt, shard, type, kind, biz_id) values (1, 0, 1, 'enqueued', 'mail.send', 'x')")
			b.projected()
			w := b.watcher(c)
			b.pass(w)
			h.answer(200)
			b.await("the delivery", func() bool {
				b.pass(w)
				alarms := b.alarms()
				return alarms[len(alarms)-1].State == ledger.StateSucceeded
			})
			if items := verified(t, h.got()[0]).Items; len(items) != 2 {
				t.Errorf("told %+v", items)
			}
		})
	}
}
