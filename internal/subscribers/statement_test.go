package subscribers_test

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
		"sql/state_retry.sql":   ledgertest.URLAs(t, relay, "operator"),
		"sql/state_discard.sql": ledgertest.URLAs(t, relay, "operator"),
	}
	plantest.PrepareAs(t, func(file string) string { return cmp.Or(other[file], relay) })
}
