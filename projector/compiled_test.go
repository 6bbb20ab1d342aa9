package projector_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// The projector's transaction disables sequential scans by a high estimated cost, and a plan made there may
// be used elsewhere. This test disables them everywhere and fails if a plan is compiled. The
// test is the owner, because it changes statistics and logs plans.
func TestNoPlanIsCompiled(t *testing.T) {
	t.Parallel()
	plain := ledgertest.Pool(t, ledgertest.Owner)
	plantest.Enlarge(t, plain)
	pool := plantest.Pool(t, plain, "set enable_seqscan = off")
	enqueueAndSucceed(t, plain, 0, 100)
	p, err := projector.New(projector.Config{DB: pool, PageSize: 20})
	if err != nil {
		t.Fatal(err)
	}
	applyAll(t, pool, p)
}
