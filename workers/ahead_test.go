package workers_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A worker with slow handlers has only the running tasks in flight: a new worker gets tasks at once.
func TestSlowHandlersAskForLittle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	gate := make(chan struct{})
	handler := b.atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		return b.outside(ctx, job, args)
	}, &workers.KindConfig{Slots: 4})
	b.EnqueueMany(8)
	first := b.Work(workers.Config{LeaseTTL: endless}, handler)
	b.Await("the first to have all it can run", func() bool { return first.KindStatus().Running == 4 })
	second := b.Work(workers.Config{LeaseTTL: endless}, handler)
	b.Await("the second to have the rest", func() bool { return second.KindStatus().Running == 4 })
	close(gate)
	b.AwaitSucceeded(8)
	b.WantOneEffectEach(8)
}

// A worker whose handlers are quick has more tasks in flight than it runs; when they become slow, it gives the others
// back.
func TestQuickHandlersAskAhead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks, quick, slots = 3000, 1000, 4
	gate := make(chan struct{})
	var begun atomic.Int64
	first := b.Work(workers.Config{}, b.atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
		if begun.Add(1) > quick {
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}, &workers.KindConfig{Slots: slots}))
	b.EnqueueMany(tasks)
	most := 0
	b.Await("handlers to be slow", func() bool {
		most = max(most, first.KindStatus().InFlight)
		return begun.Load() == quick+slots
	})
	if most <= 2*slots { // the number depends on the machine
		t.Errorf("at most %d were in flight while handlers were quick", most)
	}
	second := b.Work(
		workers.Config{}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error { return nil }, nil),
	)
	b.Await("all but what the first one runs to be done", func() bool {
		return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'") == tasks-slots
	})
	if got := first.KindStatus().InFlight; got != slots {
		t.Errorf("the first has %d in flight, want %d", got, slots)
	}
	b.Await("the second to have done the rest", func() bool {
		return second.KindStatus().Attempts[workers.OutcomeSucceeded] == tasks-quick-slots
	})
	close(gate)
	b.AwaitSucceeded(tasks)
}

// Tasks in flight beyond the slots are also bounded in bytes.
func TestAheadBytesAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks, slots, size = 150, 4, 250_000
	notes := ledger.MustKind[string]("test.note")
	var w *worker
	var most, mostBytes atomic.Int64
	ready := make(chan struct{})
	var begun atomic.Int32
	w = b.Work(workers.Config{LeaseTTL: 30 * time.Second}, func(p *workers.Pool) error {
		p.SetAheadTime(patience) // so that only the bytes bound them, also on a slow machine
		return p.Register(workers.Handle(notes, func(context.Context, *workers.Job, string) error {
			<-ready
			s := w.KindStatus()
			// Once some have ended, more tasks are asked for.
			for n := begun.Add(1); n > slots && n <= 2*slots && s.InFlight <= slots; s = w.KindStatus() {
				time.Sleep(time.Millisecond)
			}
			most.Store(max(most.Load(), int64(s.InFlight)))
			mostBytes.Store(max(mostBytes.Load(), int64(s.InFlightBytes)))
			return nil
		}, &workers.KindConfig{Slots: slots}))
	})
	close(ready)
	var entries []ledger.Entry
	for i := range tasks {
		entries = append(entries, try(notes.Entry(ledger.BizID(fmt.Sprint(i)), strings.Repeat("x", size), nil))(t))
	}
	try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	b.AwaitSucceeded(tasks)
	if limit := int64(workers.AheadBytes + slots*2*size); mostBytes.Load() > limit {
		t.Errorf("%d bytes were in flight, want at most %d", mostBytes.Load(), limit)
	}
	if most.Load() <= slots {
		t.Errorf("at most %d were in flight", most.Load())
	}
}

// Handlers of a kind become slow after the worker has asked for many tasks. Then these arrive, and the tasks of another
// kind begin beside them.
func TestTasksOfAKindThatWasQuickLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	quick, steady := ledger.MustKind[int]("test.quick"), ledger.MustKind[int]("test.steady")
	gate := make(chan struct{})
	w := b.Work(workers.Config{LeaseTTL: endless}, func(p *workers.Pool) error {
		return p.Register(
			workers.Handle(quick, func(ctx context.Context, _ *workers.Job, _ int) error {
				select {
				case <-gate:
				case <-ctx.Done():
				}
				return nil
			}, &workers.KindConfig{Slots: 1}),
			workers.Handle(steady, func(context.Context, *workers.Job, int) error {
				p.SetPace(steady.Name(), time.Hour)
				return nil
			}, &workers.KindConfig{Slots: 1}))
	})
	const ahead = 200
	enqueue := func(kind ledger.TypedKind[int], first, n int) {
		var entries []ledger.Entry
		for i := range n {
			entries = append(entries, try(kind.Entry(ledger.BizID(fmt.Sprint(first+i)), i, nil))(t))
		}
		try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	}
	w.SetPace(quick.Name(), workers.AheadTime/ahead)
	b.Await("many tasks to be asked for", func() bool { return w.Outstanding(quick.Name()) > ahead })
	w.SetPace(quick.Name(), time.Hour)
	enqueue(steady, 0, ahead)
	b.AwaitSucceeded(ahead)
	enqueue(quick, 0, 2*ahead)
	b.Await("a slow task", func() bool { return w.KindStatus().Running == 1 })
	enqueue(steady, ahead, 1)
	b.AwaitSucceeded(ahead + 1)
	close(gate)
	b.AwaitSucceeded(3*ahead + 1)
}
