package workers

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// Without hooks, a kind pays nothing for them.
func TestNoHooksCostNothing(t *testing.T) {
	runner, err := attempt.NewRunner(attempt.Config{LeaseTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	k := &kind{
		Kind:  &attempt.Kind{Runner: runner, Tasks: inflight.New[*attempt.Attempt](inflight.Config{})},
		hooks: newHookList(nil, nil, 0),
	}
	r := k.newRun(&attempt.Task{}, attempt.Begin, attempt.Head{}, time.Now())
	event := ledger.Event{Type: ledger.EventSucceeded}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.before(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		r.Started(event)
		r.Ended(attempt.End{Outcome: attempt.OutcomeSucceeded, Began: time.Now()})
		k.noticed(NoticeTakenOver)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
