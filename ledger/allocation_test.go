//go:build !race

// The race detector adds allocations.

package ledger_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Folding the usual events of a task, as a projection does for each, allocates nothing.
func TestApplyAllocations(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	enqueued := ledger.Event{
		Key: key, Version: 1, Type: ledger.EventEnqueued, RecordedAt: at, Data: json.RawMessage(`{}`),
	}
	succeeded := ledger.Event{Key: key, Version: 2, Attempt: 1, Type: ledger.EventSucceeded, RecordedAt: at}
	got := testing.AllocsPerRun(100, func() {
		task, err := ledger.Task{}.Apply(enqueued)
		if err == nil {
			_, err = task.Apply(succeeded)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

// Args that a handler gets as they are cost their copy and the variable for it.
func TestDecodeAllocations(t *testing.T) {
	kind := ledger.MustKind[json.RawMessage]("coupon.send")
	payload := []byte(`{"cents":500}`)
	got := testing.AllocsPerRun(100, func() {
		if args, err := kind.Decode(payload); err != nil || len(args) != len(payload) {
			t.Error(err)
		}
	})
	if got != 2 {
		t.Errorf("%v allocations, want 2", got)
	}
}
