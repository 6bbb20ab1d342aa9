package ledger_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The plan of an enqueue draws the xid before the position, as package ledger/feed requires. Both are defaults of
// columns, which one projection computes in the order of the columns.
func TestEnqueueDrawsTheXidFirst(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		for _, statement := range []string{
			"prepare enqueue_" + mode + " as " + ledger.EnqueueSQL,
			"set local plan_cache_mode = " + mode,
		} {
			if _, err := tx.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
		}
		explain := "explain (verbose, costs off) execute enqueue_" + mode + " ('a', 'b', '1', null, '{}', null)"
		rows, _ := tx.Query(t.Context(), explain, pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		const want = "        Output: pg_current_xact_id(), nextval("
		if plan := strings.Join(lines, "\n"); !strings.Contains(plan, want) {
			t.Errorf("%s:\n%s", mode, plan)
		}
	}
}
