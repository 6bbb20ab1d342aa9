package projector_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// rebuildTasks rebuilds the built-in projection as the owner.
func rebuildTasks(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	owner := ledgertest.As(tb, pool, ledgertest.Owner)
	if err := projector.RebuildTasks(tb.Context(), owner, nil); err != nil {
		tb.Fatal(err)
	}
}

// A rebuild repairs damaged tables beside writers and a runner, which continues with the new ones.
func TestRebuildOfTasks(t *testing.T) {
	defer projector.SetLoadBatch(50)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	stop := start(t, projector.Config{DB: pool})
	defer stop()
	scribble(t, pool, 1, 4, 60)
	awaitCaughtUp(t, pool)
	ledgertest.ExecAsOwner(t, pool, `update taskledger.task set state = 'dead'; delete from taskledger.kind_stats;
		insert into taskledger.task_count (kind, state, n, value) values ('x', 'dead', 1, 7)`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		scribble(t, pool, 2, 2, 100)
	}()
	rebuildTasks(t, pool)
	<-done
	awaitCaughtUp(t, pool)
	stop()
	check(t, pool)
}
