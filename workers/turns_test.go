package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// The kinds of a pool share its slots: a kind with a flood of tasks leaves every other turn to one
// with a few, and the number can be changed while they run.
func TestSlotsOverAllKinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	few := ledger.MustKind[orderArgs]("test.few")
	gate := make(chan struct{})
	var running, most, begun, floodBefore atomic.Int64
	handler := func(isFew bool) func(context.Context, pgx.Tx, *workers.Job, orderArgs) error {
		var done atomic.Int64
		return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			begun.Add(1)
			n := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
			if isFew && done.Add(1) == 5 {
				floodBefore.Store(begun.Load() - 5)
			}
			return insertEffect(ctx, tx, job, args)
		}
	}
	w := b.work(workers.Config{Slots: 1}, func(p *workers.Pool) error {
		return errors.Join(workers.Register(p, order, handler(false), nil), workers.Register(p, few, handler(true), nil))
	})
	b.enqueueMany(200)
	b.await("the flood to be in hand", func() bool { return begun.Load() == 1 && w.status().InHand > 8 })
	for i := range 5 {
		try(few.Enqueue(b.context(), b.db, ledger.BizID(fmt.Sprint("few-", i)), orderArgs{}, nil))(t)
	}
	b.await("the few to be in hand", func() bool { return w.Status().Kinds[1].InHand == 5 })
	for begun.Load() < 30 {
		select {
		case gate <- struct{}{}:
		case <-b.context().Done():
			t.Fatal("nothing runs any more")
		}
	}
	if n := floodBefore.Load(); n == 0 || n > 12 {
		t.Errorf("the last of five began after %d of the flood, want some 6", n)
	}
	if most.Load() != 1 {
		t.Errorf("%d handlers ran at a time, want 1", most.Load())
	}
	if err := w.SetSlots(4); err != nil {
		t.Fatal(err)
	}
	b.await("four to run", func() bool { return running.Load() == 4 })
	if err := w.SetSlots(-1); err == nil {
		t.Error("a negative number was taken")
	}
	if err := w.SetSlots(0); err != nil {
		t.Fatal(err)
	}
	b.await("all slots of the kind to be taken", func() bool { return running.Load() == workers.DefaultSlots })
	close(gate)
	b.allDone(205)
	b.eachOnce(205)
}

// A pool that stops gives back what waits for its turn.
func TestStopWhileWaitingForATurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay()
	block := make(chan struct{})
	w := b.work(workers.Config{Slots: 1}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		<-block
		return insertEffect(ctx, tx, job, args)
	}, nil))
	b.enqueueMany(30)
	b.await("one to run and others to wait", func() bool { return w.status().Running == 1 && w.status().InHand > 8 })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.stop()
	}()
	b.await("the others to be given back", func() bool { return w.status().InHand == 1 })
	close(block)
	<-stopped
	if n := one[int](b, "select count(*)::integer from taskledger.event where type <> 'enqueued' and type <> 'started'"); n != 1 {
		t.Errorf("%d outcomes, want one", n)
	}
	b.work(workers.Config{}, exactly(insertEffect, nil))
	b.allDone(30)
	b.eachOnce(30)
}
