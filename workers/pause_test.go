package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// No worker, running or new, begins a task of a paused kind until it is resumed; running attempts continue. No
// attempt is used.
func TestPauseKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	o := operator.New(b.DB)
	inside, leave := make(chan struct{}, 1), make(chan struct{})
	handler := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.BizID == "first" {
			inside <- struct{}{}
			<-leave
		}
		return insertEffect(ctx, tx, job, args)
	}
	w := b.Work(workers.Config{Slots: 1, LeaseTTL: endless}, b.exactly(handler, nil))
	first := b.Enqueue("first")
	<-inside
	b.EnqueueMany(5)
	b.Await("some to wait for a slot", func() bool { return w.KindStatus().InFlight > 1 })
	if !try(o.PauseKind(b.Context(), order.Name(), operator.Audit{Actor: "ada", Reason: "partner is down"}))(t) {
		t.Error("it was not paused before")
	}
	if try(o.PauseKind(b.Context(), order.Name(), operator.Audit{Actor: "bob"}))(t) {
		t.Error("it was paused before")
	}
	b.Await("the worker to pause the kind", func() bool { return w.KindStatus().Paused })
	close(leave)
	b.AwaitState(first, ledger.StateSucceeded)
	b.Await("what waited to be given back", func() bool { return w.KindStatus().InFlight == 0 })
	late := b.Work(workers.Config{LeaseTTL: endless}, b.exactly(handler, nil))
	b.Await("the later one to know", func() bool { return late.KindStatus().Paused })
	time.Sleep(100 * time.Millisecond) // time for a faulty worker to begin it
	if n := one[int](b, "select count(*)::integer from effect"); n != 1 {
		t.Errorf("%d effects while paused", n)
	}
	paused := try(operator.ReadPaused(b.Context(), b.DB, "", lists.All))(t)
	if len(paused) != 1 || paused[0].Kind != order.Name() || paused[0].Actor != "ada" ||
		paused[0].Reason != "partner is down" ||
		time.Since(paused[0].Since) > time.Hour {
		t.Errorf("paused: %+v", paused)
	}

	resume := func() bool {
		return try(o.ResumeKind(b.Context(), order.Name(), operator.Audit{Actor: "ada"}))(t)
	}
	if !resume() || resume() {
		t.Error("it was paused, and then it was not")
	}
	b.AwaitSucceeded(6 + 2) // with the records of the pause and its end
	b.WantOneEffectEach(6)
	if n := one[int](
		b, "select count(*)::integer from taskledger.event where type not in ('enqueued', 'started', 'succeeded')",
	); n != 0 {
		t.Errorf("%d other events", n)
	}
	if w.KindStatus().Paused {
		t.Error("still paused")
	}
}
