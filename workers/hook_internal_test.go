package workers

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Who has no hooks does not pay for them.
func TestNoHooksCostNothing(t *testing.T) {
	a := &attempt{kind: &kind{}, ctx: t.Context(), begun: time.Now()}
	event := ledger.Event{Type: ledger.EventSucceeded}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := a.before(nil); err != nil {
			t.Fatal(err)
		}
		a.appended(event)
		a.kind.ended(a, OutcomeSucceeded, nil)
		a.kind.noticed(NoticeRedelivered)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
