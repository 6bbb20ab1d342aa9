package workers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A worker whose handlers have become slow gives back the tasks that it has not begun, and others do them meanwhile.
func TestSlowHandlersGiveBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	slow := make(chan struct{})
	handler := b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.BizID >= "slow" {
			<-slow
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Slots: 2})
	first := b.Work(workers.Config{}, handler)
	b.EnqueueMany(200) // so quick that more are in flight than there are slots
	b.AwaitSucceeded(200)
	b.EnqueueRound("slow", 20)
	b.Await("tasks to be given back", func() bool { return first.KindStatus().GivenBack > 0 })
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitSucceeded(218)
	close(slow)
	b.AwaitSucceeded(220)
	b.WantOneEffectEach(220)
}

// Another kind's handlers hold all slots of a worker. It gives back the tasks that it has not begun, and takes no more:
// others do them meanwhile.
func TestHandlersOfAnotherKindHoldAllSlots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	hang, begun := make(chan struct{}), make(chan struct{})
	other := ledger.MustKind[struct{}]("test.hangs")
	orders := b.exactly(insertEffect, &workers.KindConfig{Slots: 5})
	first := b.Work(workers.Config{Slots: 1}, func(p *workers.Pool) error {
		return errors.Join(orders(p), p.Register(workers.Handle(other,
			func(context.Context, *workers.Job, struct{}) error {
				close(begun)
				<-hang
				return nil
			}, nil)))
	})
	try(other.Enqueue(t.Context(), b.As("producer"), "hangs", struct{}{}, nil))(t)
	<-begun
	b.EnqueueMany(5)
	b.Await("all tasks to be given back", func() bool { return first.KindStatus().GivenBack == 5 })
	time.Sleep(time.Second) // two reports
	b.Await("the worker to hold nothing", func() bool { return first.KindStatus().InFlight == 0 })
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitSucceeded(5)
	close(hang)
	b.EnqueueRound("after", 5)
	b.AwaitSucceeded(11) // with the one that hung
	b.WantOneEffectEach(10)
}
