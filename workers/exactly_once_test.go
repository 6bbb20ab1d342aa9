package workers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

func TestTaskIsDoneOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.work(workers.Config{}, exactly(insertEffect, nil))
	k := b.enqueue("o-1")
	b.publish(b.history(k)[0])
	b.awaitState(k, ledger.StateSucceeded)
	b.oneEffect(k)
	if diff := cmp.Diff([]ledger.EventType{ledger.EventEnqueued, ledger.EventSucceeded}, b.types(k)); diff != "" {
		t.Errorf("a quick task has two events (-want +got):\n%s", diff)
	}
	if last := b.history(k)[1]; last.Actor != w.ID() {
		t.Errorf("succeeded by %q, want the worker %q", last.Actor, w.ID())
	}
	b.await("the acknowledgement", func() bool { return w.status().InFlight == 0 })
}
