package erasure_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each file of SQL is valid for the role of the command.
func TestStatementsAreValid(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "archiver"), nil)
}
