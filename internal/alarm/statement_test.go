package alarm_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "relay"), nil)
}

// The cost of finding alarms does not grow with their number, nor that of a page of waiting tasks with the number of
// tasks.
func TestPlans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, receiver := range []string{"hook", "ops"} {
		b.die(string(alarm.Kind), receiver+"/0", 20_000, "")
	}
	b.exec("analyze taskledger.event")
	b.exec("analyze taskledger.task")
	for statement, arguments := range map[string]string{
		"newest":         "('taskledger.alarm', 'ops')",
		"list":           "('taskledger.alarm', 10)",
		"waiting":        "('taskledger.alarm', 'hook/01', 100)",
		"waiting_listed": "('taskledger.alarm', 0, '', '', 100, 1000)",
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			tx, err := b.db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			prepared := statement + "_" + mode
			for _, sql := range []string{
				"set local plan_cache_mode = " + mode,
				"prepare " + prepared + " as " + alarm.Statements[statement],
			} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := tx.Query(t.Context(), "explain (analyze, costs off, timing off) execute "+prepared+arguments)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			for _, expensive := range []string{"Seq Scan on", "Sort Method: external", "rows=20000 "} {
				if strings.Contains(plan, expensive) {
					t.Errorf("%s, %s:\n%s", statement, mode, plan)
				}
			}
		}
	}
}

// A watcher works in every query mode of pgx, and so through every pooler.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b, h := setup(t), newWebhookServer(t)
			h.answer(500)
			plantest.Settings(t, b.db.Config().ConnString())
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
			b.exec(`
				insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
				values (1, 0, 1, 'enqueued', 'mail.send', 'x')`)
			b.awaitProjected()
			w := b.watcher(c)
			b.pass(w)
			h.answer(200)
			b.await("the delivery", func() bool {
				b.pass(w)
				alarms := b.alarms()
				return alarms[len(alarms)-1].State == ledger.StateSucceeded
			})
			if items := verified(t, h.got()[0]).Items; len(items) != 2 {
				t.Errorf("reported %+v", items)
			}
		})
	}
}
