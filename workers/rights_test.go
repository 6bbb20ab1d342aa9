package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/operator"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// Relay, projector, scheduler, reconciler, operator and workers need no more than the rights of their roles. The
// tests of this package run under roles as well, except statements of the tests.
func TestWorkerRights(t *testing.T) {
	t.Parallel()
	needMessages(t)
	b := &bundle{servicetest.NewServed(t, outbox.StreamConfig{})}
	b.Schedule()
	r := try(
		reconciler.New(
			reconciler.Config{DB: b.As("relay"), NATS: b.NC, Every: 50 * time.Millisecond, Grace: time.Millisecond},
		),
	)(
		t,
	)
	b.Start(r.Run)
	lost := b.Enqueue("lost")
	b.AwaitProjected()
	b.AcknowledgeUnworked(1)
	b.Await("the reconciler to release it", func() bool { return len(b.EventTypes(lost)) == 2 })
	retry := ledger.RetryPolicy{Ladder: []time.Duration{time.Millisecond}}
	b.Work(
		workers.Config{DB: b.As("worker")},
		exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if job.Attempt == 1 {
				return errBoom
			}
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{Retry: retry}),
	)
	k := b.Enqueue("o-1")
	try(order.Enqueue(b.Context(), b.As("producer"), "o-2", orderArgs{}, &ledger.EnqueueOptions{RunIn: time.Hour}))(t)
	later := ledger.Key{Kind: order.Name(), BizID: "o-2"}
	try(b.Operator(nil).Release(b.Context(), later, operator.Audit{}))(t)
	for _, k := range []ledger.Key{k, later, lost} {
		b.AwaitState(k, ledger.StateSucceeded)
		b.WantOneEffect(k)
	}
	if _, err := ledger.ReadRejected(b.Context(), b.As("reader")); err != nil {
		t.Error(err)
	}
}
