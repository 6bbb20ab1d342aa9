package workers

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_700_000_000_000_001).UTC()
	msg := stream.Message{Key: ledger.Key{Kind: "k", BizID: "1"}, Version: 1, RecordedAt: at}
	known := head{found: true, version: 2, recordedAt: at, eventType: ledger.EventStarted, actor: "other"}
	with := func(change func(*head)) head {
		h := known
		change(&h)
		return h
	}
	tests := map[string]struct {
		head        head
		redelivered bool
		want        verdict
	}{
		"no such task":                    {head: head{}, want: refuseGhost},
		"no such event":                   {head: with(func(h *head) { h.recordedAt = time.Time{} }), want: refuseGhost},
		"another event in its place":      {head: with(func(h *head) { h.recordedAt = at.Add(time.Microsecond) }), want: refuseGhost},
		"the same instant elsewhere":      {head: with(func(h *head) { h.recordedAt = at.In(time.FixedZone("", 3600)) }), want: takeOver},
		"ghost of a finished task":        {head: head{found: true, version: 1, eventType: ledger.EventSucceeded}, want: refuseGhost},
		"enqueued":                        {head: with(func(h *head) { h.eventType = ledger.EventEnqueued }), want: run},
		"released":                        {head: with(func(h *head) { h.eventType = ledger.EventReleased }), want: run},
		"interrupted":                     {head: with(func(h *head) { h.eventType = ledger.EventInterrupted }), want: run},
		"enqueued, again":                 {head: with(func(h *head) { h.eventType = ledger.EventEnqueued }), redelivered: true, want: claimAndRun},
		"running, worker gone":            {head: known, want: takeOver},
		"running, worker alive":           {head: with(func(h *head) { h.alive = time.Millisecond }), want: wait},
		"progressed, worker alive":        {head: with(func(h *head) { h.alive, h.eventType = 1, ledger.EventProgressed }), want: wait},
		"running, by this very process":   {head: with(func(h *head) { h.actor = "self" }), want: resume},
		"running by us with a live lease": {head: with(func(h *head) { h.actor, h.alive = "self", time.Second }), redelivered: true, want: resume},
		"running by nobody":               {head: with(func(h *head) { h.actor = "" }), want: takeOver},
		"failed":                          {head: with(func(h *head) { h.eventType = ledger.EventFailed }), want: drop},
		"snoozed":                         {head: with(func(h *head) { h.eventType = ledger.EventSnoozed }), want: drop},
		"scheduled":                       {head: with(func(h *head) { h.eventType = ledger.EventScheduled }), want: drop},
		"succeeded":                       {head: with(func(h *head) { h.eventType = ledger.EventSucceeded }), want: drop},
		"buried":                          {head: with(func(h *head) { h.eventType = ledger.EventBuried }), redelivered: true, want: drop},
		"cancelled":                       {head: with(func(h *head) { h.eventType = ledger.EventCancelled }), want: drop},
		"expired":                         {head: with(func(h *head) { h.eventType = ledger.EventExpired }), want: drop},
		"discarded":                       {head: with(func(h *head) { h.eventType = ledger.EventDiscarded }), want: drop},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := decide(msg, test.redelivered, test.head, "self"); got != test.want {
				t.Errorf("verdict %d, want %d", got, test.want)
			}
		})
	}
}

// Whatever the last event of a task is, the table has an answer that is not "ghost".
func TestDecideKnowsEveryEventType(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1).UTC()
	msg := stream.Message{Version: 1, RecordedAt: at}
	for _, row := range ledger.Transitions() {
		h := head{found: true, version: 1, recordedAt: at, eventType: row.Type}
		got := decide(msg, false, h, "self")
		if finished := row.To.Finished(); (got == drop) != (finished || row.To == ledger.StateScheduled || row.To == ledger.StateRetrying) {
			t.Errorf("after %s: verdict %d", row.Type, got)
		}
	}
}
