package projection_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.PrepareAs(t, func(string) string { return ledgertest.URL(t, ledgertest.Owner) })
}
