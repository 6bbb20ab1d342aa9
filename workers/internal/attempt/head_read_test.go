package attempt_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// Heads allocates nothing for a task whose offer contains its args.
func TestHeadsAllocations(t *testing.T) {
	db := ledgertest.Pool(t)
	runner, err := attempt.NewRunner(attempt.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	kind := &attempt.Kind{Runner: runner, Name: "coupon.send"}
	args := json.RawMessage(`{"cents": 5}`)
	tasks := make([]*attempt.Task, 600)
	entries := make([]ledger.Entry, len(tasks))
	for i := range tasks {
		key := ledger.Key{Kind: kind.Name, BizID: ledger.BizID(fmt.Sprintf("order-%d", i))}
		entries[i] = ledger.Entry{Key: key, Args: args}
		tasks[i] = &attempt.Task{Message: stream.Message{Key: key, Version: 1, Payload: args}}
	}
	if _, err := ledger.EnqueueMany(t.Context(), db, entries); err != nil {
		t.Fatal(err)
	}
	space := make([]attempt.Head, len(tasks))
	count := func(n int) float64 {
		return testing.AllocsPerRun(5, func() {
			heads, err := kind.Heads(t.Context(), tasks[:n], 0, space)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range heads {
				if !h.IsFound {
					t.Fatalf("%+v", h)
				}
			}
		})
	}
	if got := (count(600) - count(100)) / 500; got > 0.1 {
		t.Errorf("%v allocations a head, want none", got)
	}
}
