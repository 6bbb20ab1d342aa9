package console_test

import (
	"net/http"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// An archived task is found by its key. Its page states when it was archived, and how it runs again.
func TestArchivedTask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledger.Key{Kind: "coupon.send", BizID: "order-1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	ledgertest.Append(t, ledgertest.As(t, s.db, ledgertest.Owner), k, ledger.EventStarted, ledger.EventSucceeded)
	s.project()
	ledgertest.ExecAsOwner(t, s.db, `
		update taskledger.cursor set audited = null, unaudited = 0, unaudited_xor = 0 where reader = 'projector'`)
	o := archiver.Options{Reason: "a test", Actor: "alice"}
	if _, err := archiver.Run(t.Context(), ledgertest.As(t, s.db, "archiver"), o); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Viewer)
	b.want(b.get("/find?q=coupon.send/order-1"), http.StatusOK, "/task?biz_id=order-1")
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "<h1>order-1</h1>", "Archived: its events",
		"none: they were not kept", "taskledger enqueue coupon.send order-1 --if-exists rerun",
		`class="state succeeded"`)
}
