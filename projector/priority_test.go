package projector_test

import (
	"maps"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// The projection has the partition and the priority of each task's last event, and 3 for a task without a priority:
// whether a page inserts or updates its row, and after a rebuild.
func TestPrioritiesAreProjected(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	enqueue := func(id ledger.BizID, p ledger.Priority, partition string) ledger.Key {
		k := ledger.Key{Kind: "a", BizID: id}
		_, err := ledger.Enqueue(t.Context(), pool, k, nil, &ledger.EnqueueOptions{Priority: p, Partition: partition})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	priorities := func() map[ledger.BizID]string {
		rows, err := pool.Query(t.Context(), "select biz_id, priority || partition from taskledger.tasks")
		if err != nil {
			t.Fatal(err)
		}
		all := map[ledger.BizID]string{}
		var id ledger.BizID
		var p string
		for rows.Next() {
			if err := rows.Scan((*string)(&id), &p); err != nil {
				t.Fatal(err)
			}
			all[id] = p
		}
		return all
	}
	plain, urgent, low := enqueue("plain", 0, ""), enqueue("urgent", 1, "x"), enqueue("low", 4, "y")
	project(t, pool)
	want := map[ledger.BizID]string{"plain": "3", "urgent": "1x", "low": "4y"}
	if diff := difference.Of(want, priorities()); diff != "" {
		t.Errorf("inserted: %s", diff)
	}

	r := ledger.AppendRequest{Key: low, Expected: 1, Type: ledger.EventScheduled, In: time.Hour, Priority: 2}
	for _, r := range []ledger.AppendRequest{
		r, ledgertest.Request(plain, 1, ledger.EventStarted), ledgertest.Request(urgent, 1, ledger.EventStarted),
	} {
		if _, err := ledger.Append(t.Context(), pool, r); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("both", 1, "z")
	project(t, pool)
	maps.Copy(want, map[ledger.BizID]string{"low": "2y", "both": "1z"})
	if diff := difference.Of(want, priorities()); diff != "" {
		t.Errorf("updated: %s", diff)
	}

	if err := projector.RebuildTasks(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(want, priorities()); diff != "" {
		t.Errorf("rebuilt: %s", diff)
	}
	if report, err := projector.Verify(t.Context(), pool, nil); err != nil || !report.Equal() {
		t.Errorf("%v, %v", report.Differences, err)
	}
}
