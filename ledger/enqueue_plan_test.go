package ledger_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The plan of each statement that inserts events draws the xid before the position, as package internal/feed requires.
// Both are defaults of columns, which one projection computes in the order of the columns; no role but the owner may
// insert a value of its own.
func TestInsertsDrawTheXidFirst(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	files, err := filepath.Glob("sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	inserts := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "insert into taskledger.event ") {
			continue
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			inserts++
			if drawn := positionsDrawn(t, pool, mode, string(text)); !drawn.xidFirst {
				t.Errorf("%s, %s:\n%s", file, mode, drawn.plan)
			}
		}
	}
	if inserts < 2*8 {
		t.Errorf("only %d plans were read", inserts)
	}

	// A mutant: the columns in the other order.
	const mutant = `
		create table mutant (
		  position bigint generated always as identity, xid xid8 not null default pg_current_xact_id(),
		  version integer, attempt integer, shard smallint, type taskledger.event_type,
		  login_id integer, data_version smallint, priority smallint, partition text,
		  kind text collate "C", biz_id text collate "C", actor text, data json, meta json,
		  primary key (kind, biz_id, version))`
	if _, err := pool.Exec(t.Context(), mutant); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("sql/enqueue.sql")
	if err != nil {
		t.Fatal(err)
	}
	mutated := strings.Replace(string(text), "insert into taskledger.event ", "insert into mutant ", 1)
	if drawn := positionsDrawn(t, pool, "force_generic_plan", mutated); drawn.xidFirst {
		t.Errorf("the mutant draws the xid first: this proves nothing\n%s", drawn.plan)
	}
}

// drawn is how a plan draws positions.
type drawn struct {
	plan     string
	xidFirst bool // wherever a position is drawn, and at least once
}

var parameter = regexp.MustCompile(`\$\d+`)

// positionsDrawn explains a statement.
func positionsDrawn(t *testing.T, pool *pgxpool.Pool, mode, statement string) drawn {
	t.Helper()
	count := 0
	for _, name := range parameter.FindAllString(statement, -1) {
		var n int
		_, _ = fmt.Sscanf(name, "$%d", &n)
		count = max(count, n)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, s := range []string{
		"set local plan_cache_mode = " + mode, "deallocate all", "prepare insertion as " + statement,
	} {
		if _, err := tx.Exec(t.Context(), s, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	explain := "explain (verbose, costs off) execute insertion (" +
		strings.TrimSuffix(strings.Repeat("null, ", count), ", ") + ")"
	rows, _ := tx.Query(t.Context(), explain, pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	d := drawn{plan: strings.Join(lines, "\n")}
	for _, line := range lines {
		if strings.Contains(line, "nextval(") {
			d.xidFirst = strings.Contains(line, "Output: pg_current_xact_id(), nextval(")
			if !d.xidFirst {
				break
			}
		}
	}
	return d
}
