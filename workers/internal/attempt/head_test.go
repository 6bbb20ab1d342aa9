package attempt_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_700_000_000_000_001).UTC()
	msg := stream.Message{Key: ledger.Key{Kind: "k", BizID: "1"}, Version: 1, RecordedAt: at}
	known := attempt.Head{IsFound: true, Version: 2, RecordedAt: at, Type: ledger.EventStarted, Actor: "other"}
	with := func(change func(*attempt.Head)) attempt.Head {
		h := known
		change(&h)
		return h
	}
	tests := map[string]struct {
		head    attempt.Head
		isAgain bool
		want    attempt.Verdict
	}{
		"no such task":  {head: attempt.Head{}, want: attempt.RefuseGhost},
		"no such event": {head: with(func(h *attempt.Head) { h.RecordedAt = time.Time{} }), want: attempt.RefuseGhost},
		"another event in its place": {
			head: with(func(h *attempt.Head) { h.RecordedAt = at.Add(time.Microsecond) }), want: attempt.RefuseGhost,
		},
		"the same instant elsewhere": {
			head: with(func(h *attempt.Head) { h.RecordedAt = at.In(time.FixedZone("", 3600)) }),
			want: attempt.TakeOver,
		},
		"ghost of a finished task": {
			head: attempt.Head{IsFound: true, Version: 1, Type: ledger.EventSucceeded}, want: attempt.RefuseGhost,
		},
		"enqueued":    {head: with(func(h *attempt.Head) { h.Type = ledger.EventEnqueued }), want: attempt.Begin},
		"released":    {head: with(func(h *attempt.Head) { h.Type = ledger.EventReleased }), want: attempt.Begin},
		"interrupted": {head: with(func(h *attempt.Head) { h.Type = ledger.EventInterrupted }), want: attempt.Begin},
		"enqueued, again": {
			head:    with(func(h *attempt.Head) { h.Type = ledger.EventEnqueued }),
			isAgain: true,
			want:    attempt.ClaimFirst,
		},
		"running, worker gone":  {head: known, want: attempt.TakeOver},
		"running, worker alive": {head: with(func(h *attempt.Head) { h.Alive = time.Millisecond }), want: attempt.Wait},
		"progressed, worker alive": {
			head: with(func(h *attempt.Head) { h.Alive, h.Type = 1, ledger.EventProgressed }), want: attempt.Wait,
		},
		"running, by this very process": {head: with(func(h *attempt.Head) { h.Actor = "self" }), want: attempt.Resume},
		"running by us with a live lease": {
			head:    with(func(h *attempt.Head) { h.Actor, h.Alive = "self", time.Second }),
			isAgain: true,
			want:    attempt.Resume,
		},
		"running without an actor": {head: with(func(h *attempt.Head) { h.Actor = "" }), want: attempt.TakeOver},
		"failed": {
			head: with(func(h *attempt.Head) { h.Type = ledger.EventFailed }), want: attempt.Drop,
		},
		"snoozed": {
			head: with(func(h *attempt.Head) { h.Type = ledger.EventSnoozed }), want: attempt.Drop,
		},
		"scheduled": {
			head: with(func(h *attempt.Head) { h.Type = ledger.EventScheduled }), want: attempt.Drop,
		},
		"succeeded": {
			head: with(func(h *attempt.Head) { h.Type = ledger.EventSucceeded }), want: attempt.Drop,
		},
		"buried": {
			head: with(func(h *attempt.Head) { h.Type = ledger.EventBuried }), isAgain: true, want: attempt.Drop,
		},
		"cancelled": {head: with(func(h *attempt.Head) { h.Type = ledger.EventCancelled }), want: attempt.Drop},
		"expired":   {head: with(func(h *attempt.Head) { h.Type = ledger.EventExpired }), want: attempt.Drop},
		"discarded": {head: with(func(h *attempt.Head) { h.Type = ledger.EventDiscarded }), want: attempt.Drop},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := attempt.Decide(msg, test.isAgain, test.head, "self"); got != test.want {
				t.Errorf("verdict %d, want %d", got, test.want)
			}
		})
	}
}

// For every type of last event the table contains a verdict other than RefuseGhost.
func TestDecideCoversEveryEventType(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1).UTC()
	msg := stream.Message{Version: 1, RecordedAt: at}
	for _, row := range ledger.Transitions() {
		h := attempt.Head{IsFound: true, Version: 1, RecordedAt: at, Type: row.Type}
		got := attempt.Decide(msg, false, h, "self")
		waits := row.To == ledger.StateScheduled || row.To == ledger.StateRetrying || row.To == ledger.StateInLine
		if (got == attempt.Drop) != (row.To.Finished() || waits) {
			t.Errorf("after %s: verdict %d", row.Type, got)
		}
	}
}
