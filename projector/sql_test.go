package projector_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

func statement(tb testing.TB, name string) string {
	tb.Helper()
	text, err := fs.ReadFile(projector.SQL, "sql/"+name+".sql")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile("../internal/projection/sql/" + name + ".sql")
	}
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	relay := ledgertest.URL(t, "relay")
	operator := ledgertest.URLAs(t, relay, "operator")
	plantest.PrepareAs(t, func(file string) string {
		if file == "sql/illegal_dismiss.sql" {
			return operator
		}
		return relay
	})
}

func TestEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(ledgertest.URL(t, ledgertest.App, "relay", "operator"))
			if err != nil {
				t.Fatal(err)
			}
			plantest.Settings(t, config.ConnString())
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			scribble(t, pool, 9, 2, 20)
			project(t, pool)
			check(t, pool)
			if _, _, err := projector.ReadTasks(t.Context(), pool,
				projector.TaskFilter{Kind: "a", State: ledger.StateDead, StartAfter: 99}); err != nil {
				t.Error(err)
			}
			tasks, _, err := projector.ReadTasks(t.Context(), pool, projector.TaskFilter{Kind: "a"})
			if err != nil || len(tasks) == 0 {
				t.Fatalf("%d tasks, %v", len(tasks), err)
			}
			if _, err := projector.ReadTree(t.Context(), pool, tasks[0].Key, projector.TreeLimits{}); err != nil {
				t.Error(err)
			}
			if age := time.Since(tasks[0].EnqueuedAt); age < 0 || age > time.Hour {
				t.Errorf("a task was enqueued %v ago", age)
			}
			rebuildIn(t, pool, mode)
		})
	}
}

// rebuildIn rebuilds the tables in a query mode.
func rebuildIn(t *testing.T, pool *pgxpool.Pool, mode pgx.QueryExecMode) {
	t.Helper()
	config := ledgertest.As(t, pool, ledgertest.Owner).Config()
	config.ConnConfig.DefaultQueryExecMode = mode
	owner, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	project(t, pool)
	check(t, pool)
}

// The plans of a page's statements, made while the tables are empty and kept, as a projector's connection
// keeps them.
func TestPlansMadeOnEmptyTables(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	for set := range strings.SplitSeq(projector.Begin(), ";") {
		if strings.Contains(set, "set local") {
			if _, err := tx.Exec(t.Context(), set); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := tx.Exec(t.Context(), "set local plan_cache_mode to force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"tasks_before": "Index Scan using task_pkey on task c",
		"tasks_update": "Tid Scan on task t",
		"counts_add":   "Index Scan Backward using task_count_pkey on task_count c",
		"counts_prune": "Index Scan using task_count_pkey on task_count c",
	} {
		plan := explain(t, tx, name)
		if !strings.Contains(plan, want) || strings.Contains(plan, "Seq Scan on") {
			t.Errorf("%s: want %s, got\n%s", name, want, plan)
		}
	}
}

// explain returns the plan of a statement with nulls for parameters.
func explain(t *testing.T, tx pgx.Tx, name string) string {
	t.Helper()
	text := statement(t, name)
	if _, err := tx.Exec(t.Context(), "prepare "+name+" as "+text, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, parameter := range regexp.MustCompile(`\$(\d+)::`).FindAllStringSubmatch(text, -1) {
		var n int
		fmt.Sscan(parameter[1], &n)
		highest = max(highest, n)
	}
	rows, err := tx.Query(t.Context(), "explain execute "+name+"("+strings.TrimSuffix(strings.Repeat("null,", highest),
		",")+")",
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
