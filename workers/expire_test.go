package workers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

func (b *bundle) finishBy(id string, in time.Duration) ledger.Key {
	b.T.Helper()
	by := one[time.Time](b, "select clock_timestamp()").Add(in)
	try(order.Enqueue(b.Context(), b.DB, ledger.BizID(id), orderArgs{}, &ledger.EnqueueOptions{FinishBy: by}))(b.T)
	return ledger.Key{Kind: order.Name(), BizID: ledger.BizID(id)}
}

// The context of an attempt ends at the deadline of its task, and there is no other attempt.
func TestAttemptEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*bundle, chan<- error) func(*workers.Pool) error{
		"exactly once": func(b *bundle, causes chan<- error) func(*workers.Pool) error {
			return b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				if err := insertEffect(ctx, tx, job, args); err != nil {
					return err
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}, nil)
		},
		"at least once": func(b *bundle, causes chan<- error) func(*workers.Pool) error {
			return b.atLeast(func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			causes := make(chan error, 1)
			w := b.Work(workers.Config{}, register(b, causes))
			var k ledger.Key
			for in := 2 * time.Second; len(causes) == 0; in *= 2 { // a busy machine may not begin it in time
				k = b.finishBy(in.String(), in)
				b.AwaitState(k, ledger.StateExpired)
			}
			if cause := <-causes; !errors.Is(cause, workers.ErrExpired) {
				t.Errorf("cause %v", cause)
			}
			w.Stop()
			types := b.EventTypes(k)
			if diff := difference.Of(
				[]ledger.EventType{ledger.EventFailed, ledger.EventExpired}, types[len(types)-2:],
			); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := b.Effects(k); n != 0 {
				t.Errorf("%d effects", n)
			}
			ledgertest.Check(t, b.DB)
		})
	}
}

// No attempt begins after the deadline, not even of a task that was released since or whose worker was lost.
func TestNoAttemptBeginsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	late := b.finishBy("late", 0)
	released := b.finishBy("released", 0)
	ledgertest.Append(t, b.DB, released, ledger.EventExpired, ledger.EventReleased)
	lost := b.finishBy("lost", 0)
	ledgertest.Append(t, b.DB, lost, ledger.EventStarted)
	inTime := b.finishBy("in time", time.Hour)
	b.Dispatch()
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitState(inTime, ledger.StateSucceeded)
	for k, want := range map[ledger.Key][]ledger.EventType{
		late:     {ledger.EventEnqueued, ledger.EventExpired},
		released: {ledger.EventEnqueued, ledger.EventExpired, ledger.EventReleased, ledger.EventExpired},
		lost:     {ledger.EventEnqueued, ledger.EventStarted, ledger.EventInterrupted, ledger.EventExpired},
	} {
		b.AwaitState(k, ledger.StateExpired)
		if diff := difference.Of(want, b.EventTypes(k)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", k, diff)
		}
		if n := b.Effects(k); n != 0 {
			t.Errorf("%s: %d effects", k, n)
		}
	}
	ledgertest.Check(t, b.DB)
}
