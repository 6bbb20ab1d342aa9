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
	operator := ledgertest.URLAs(t, relay, "operator")
	owner := ledgertest.URLAs(t, relay, ledgertest.Owner)
	plantest.PrepareAs(t, func(file string) string {
		switch {
		case strings.HasPrefix(file, "sql/rebase_"), file == "sql/installation_renew.sql":
			return owner // a rebase changes events and the id of the ledger
		case strings.HasPrefix(file, "sql/subscriber_"):
			return operator
		}
		return relay
	})
}
