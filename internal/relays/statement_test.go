package relays_test

import (
	"cmp"
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	relay := ledgertest.URL(t, "relay")
	other := map[string]string{
		"sql/discard.sql":    ledgertest.URLAs(t, relay, "operator"),
		"sql/unpark.sql":     ledgertest.URLAs(t, relay, "operator"),
		"sql/unpark_all.sql": ledgertest.URLAs(t, relay, ledgertest.Owner), // of a rebase
	}
	plantest.PrepareAs(t, func(file string) string { return cmp.Or(other[file], relay) })
}
