package operator_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers/operator"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t), nil)
}

// Reading dead tasks costs the same however many other tasks there are.
func TestDeadTasksAreReadByIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bury("a", 50, "no customer")
	b.Project()
	b.Exec(`
		insert into taskledger.task
			(kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at)
		select 'test.order', 's-' || i, 0, 'scheduled', true, 1, 0, 0, now(), now() from generate_series(1, 50000) i`)
	b.Exec("analyze taskledger.task")
	for name, call := range map[string]string{
		"dead.sql":      "('')",
		"find_dead.sql": `('', '', '{dead}', 0, '', '', '', 5000)`,
	} {
		conn := servicetest.Try(b.DB.Acquire(b.Context()))(t)
		defer conn.Release()
		servicetest.Try(conn.Exec(b.Context(), "set plan_cache_mode = force_generic_plan"))(t)
		servicetest.Try(conn.Exec(b.Context(), "prepare dead as "+operator.Statements[name]))(t)
		rows := servicetest.Try(conn.Query(b.Context(), "explain (analyze, buffers) execute dead "+call))(t)
		var plan []string
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, line)
		}
		servicetest.Try(conn.Exec(b.Context(), "deallocate dead"))(t)
		text := strings.Join(plan, "\n")
		if !strings.Contains(text, "task_dead") || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
