package projector_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// A backlog is applied four thousand events at a time, each page in one transaction with one cursor row.
func TestPagesOfABacklog(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueueAndSucceed(t, pool, 0, 4000) // 8,000 events
	defer start(t, projector.Config{DB: pool})()
	awaitCaughtUp(t, pool)
	var rows int
	if err := pool.QueryRow(t.Context(), `select max(n) from taskledger.cursor where reader = 'projector'`).Scan(
		&rows); err != nil {
		t.Fatal(err)
	}
	if rows != 3 { // the first one is before all events
		t.Errorf("%d cursor rows, want 3", rows)
	}
}

// The events of a page are grouped in the memory of the page before, and that has nothing of it.
func TestGroupingAllocations(t *testing.T) {
	events := make([]ledger.Event, 1000)
	for i := range events {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%03d", i*7%1000))}
		events[i] = ledger.Event{Key: key, Version: 1, Type: ledger.EventEnqueued, Data: json.RawMessage(`{}`)}
	}
	group, isEmpty := projector.GroupEvents()
	group(events)
	if got := testing.AllocsPerRun(20, func() { group(events) }); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
	if !isEmpty() {
		t.Error("the memory refers to events of the last page")
	}
}
