package reconciler_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "relay"), nil)
}

// PostgreSQL compiles no plan of a statement that is executed repeatedly, on a ledger with a long history.
func TestNoPlanIsCompiled(t *testing.T) {
	t.Parallel()
	plain := ledgertest.Pool(t, ledgertest.Owner)
	plantest.Enlarge(t, plain)
	b := &fixture{servicetest.NewServedOn(t, plain, outbox.StreamConfig{})}
	b.EnqueueMany(100)
	b.AwaitProjected()
	b.AcknowledgeUnworked(100)
	r := b.reconciler(plantest.Pool(t, plain, ""))
	b.Await("the releases", func() bool {
		b.passes(r, 1)
		return b.releases() == 100
	})
}
