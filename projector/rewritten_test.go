package projector_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// A table that is rewritten during a rebuild does not end the rebuild.
func TestRebuildOfTasksWhoseTablesAreRewritten(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.Append(t, pool, someTask(5))
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	steps := []func(){
		func() { ledgertest.Append(t, pool, someTask(1)) }, // after the load
		func() {
			ledgertest.ExecAsOwner(t, pool, "cluster taskledger_build_tasks.task using task_pkey")
			ledgertest.Append(t, pool, someTask(1), ledger.EventStarted)
		},
	}
	o := &projector.RebuildOptions{PageSize: 2, Progress: func(int64, int64) {
		if len(steps) > 0 {
			steps[0]()
			steps = steps[1:]
		}
	}}
	if err := projector.RebuildTasks(t.Context(), owner, o); err != nil {
		t.Fatal(err)
	}
}
