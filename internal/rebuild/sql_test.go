package rebuild_test

import (
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
		switch file {
		case "sql/work_want.sql":
			return operator
		case "sql/invalidate_all.sql":
			return owner
		}
		return relay
	})
}
