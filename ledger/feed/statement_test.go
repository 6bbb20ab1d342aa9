package feed_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	relay := ledgertest.URL(t, "relay")
	owner := ledgertest.URLAs(t, relay, ledgertest.Owner)
	plantest.PrepareAs(t, func(file string) string {
		if strings.HasPrefix(file, "sql/rebase_") {
			return owner // a rebase changes events
		}
		return relay
	})
}
