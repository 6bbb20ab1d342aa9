package operator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "operator"), nil)
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
		select 'test.order', 's-' || i, 0, 'scheduled', 'scheduled', 1, 0, 0, now(), now()
		  from generate_series(1, 50000) i`)
	b.Exec("analyze taskledger.task")
	for name, call := range map[string]string{
		"dead.sql":      "('')",
		"dead_page.sql": "('', '', 26, 2000, '', now()::text)",
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

// The statements of package operator work in each query mode of pgx, under any settings of the role.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	database := func(t *testing.T) *pgxpool.Pool { return servicetest.Pool(t) }
	plantest.EachQueryMode(t, database, func(t *testing.T, db *pgxpool.Pool) {
		b := &fixture{servicetest.NewDatabaseOn(t, db)}
		b.bury("a", 3, "no customer")
		b.Project()
		groups, err := operator.ReadDead(t.Context(), db, "")
		if err != nil || len(groups) != 1 {
			t.Fatalf("%d groups, %v", len(groups), err)
		}
		if age := time.Since(groups[0].Oldest); age < 0 || age > time.Hour {
			t.Errorf("the oldest task died %v ago", age)
		}
		o := operator.New(db)
		audit := operator.Audit{Actor: "me", Reason: "why"}
		if _, err := o.PauseKind(t.Context(), "test.order", audit); err != nil {
			t.Fatal(err)
		}
		paused, err := operator.ReadPaused(t.Context(), db, "", lists.All)
		if err != nil || len(paused) != 1 {
			t.Fatalf("%d paused, %v", len(paused), err)
		}
		if age := time.Since(paused[0].Since); age < 0 || age > time.Hour {
			t.Errorf("the kind was paused %v ago", age)
		}
		found := servicetest.Try(o.ReleaseAll(t.Context(), operator.Filter{Kind: "test.order"}, audit, nil))(t)
		if found.Done != 3 {
			t.Errorf("released %+v, want 3", found)
		}
	})
}
