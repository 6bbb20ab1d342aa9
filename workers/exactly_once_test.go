package workers_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

func TestTaskIsDoneOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	w := b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventSucceeded}
	if diff := difference.Of(want, b.EventTypes(k)); diff != "" {
		t.Errorf("a quick task has two events (-want +got):\n%s", diff)
	}
	if last := b.History(k)[1]; last.Actor != w.ID() {
		t.Errorf("succeeded by %q, want the worker %q", last.Actor, w.ID())
	}
	b.Await("nothing to be in flight", func() bool { return w.KindStatus().InFlight == 0 })
}
