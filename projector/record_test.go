package projector_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// records returns the events of the records of rebuilds, in order.
func records(tb testing.TB, pool *pgxpool.Pool) []string {
	tb.Helper()
	rows, err := pool.Query(tb.Context(), `
		select e.type || ' by ' || e.actor || coalesce(': ' || (e.data->>'reason'), '')
		  from taskledger.event e
		 where e.kind = 'taskledger.operation' and starts_with(e.biz_id, 'projection.rebuild/')
		 order by e.position`)
	if err != nil {
		tb.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

var alice = projector.Act{Actor: "alice", Reason: "test"}

// A rebuild of the built-in tables that is killed leaves its record open, and the next one that succeeds ends it.
func TestRecordOfAKilledRebuildOfTasks(t *testing.T) {
	t.Parallel()
	const begun, done = "enqueued by alice: test", "succeeded by alice"
	for point, want := range map[string][]string{
		fault.BuildBatch: {begun, begun, done, done},
		fault.SwapDone:   {begun, done, begun, done},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
			owner := ledgertest.As(t, pool, ledgertest.Owner)
			scribble(t, pool, 1, 2, 80)
			project(t, pool)
			runUntilKilled(t, "rebuild tasks by alice", ledgertest.URLAs(t, pool.Config().ConnString(),
				ledgertest.Owner), point)
			if err := projector.RebuildTasksAs(t.Context(), owner, alice, nil); err != nil {
				t.Fatal(err)
			}
			if diff := difference.Of(want, records(t, pool)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			project(t, pool)
			check(t, pool)
		})
	}
}
