package archive_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each file of SQL is valid for the owner; TestExportAndImport executes what a reader may.
func TestStatementsAreValid(t *testing.T) {
	plantest.Prepare(t, ledgertest.URL(t, ledgertest.Owner), nil)
}
