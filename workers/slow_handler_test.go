package workers_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

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
