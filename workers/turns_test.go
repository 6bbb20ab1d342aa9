package workers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// The kinds of a pool share its slots: a kind with a flood of tasks leaves every other turn to a kind with a few, and
// the number of slots can be changed at run time.
func TestSlotsOverAllKinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
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
	w := b.Work(workers.Config{Slots: 1}, func(p *workers.Pool) error {
		return errors.Join(
			p.Register(workers.Handle(order, handler(false), nil)), p.Register(workers.Handle(few, handler(true), nil)),
		)
	})
	b.EnqueueMany(200)
	b.Await(
		"the flood to be in flight",
		func() bool { return begun.Load() == 1 && w.KindStatus().InFlight == workers.DefaultSlots },
	)
	for i := range 5 {
		try(few.Enqueue(b.Context(), b.DB, ledger.BizID(fmt.Sprint("few-", i)), orderArgs{}, nil))(t)
	}
	b.Await(
		"the few to wait for their turn",
		func() bool { return w.Waiting(1) == 5 && w.Waiting(0) == workers.DefaultSlots-1 },
	)
	for begun.Load() < 30 {
		select {
		case gate <- struct{}{}:
		case <-b.Context().Done():
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
	b.Await("four to run", func() bool { return running.Load() == 4 })
	if err := w.SetSlots(-1); err == nil {
		t.Error("a negative number was taken")
	}
	if err := w.SetSlots(0); err != nil {
		t.Fatal(err)
	}
	b.Await("all slots of the kind to be taken", func() bool { return running.Load() == workers.DefaultSlots })
	close(gate)
	b.AwaitSucceeded(205)
	b.WantOneEffectEach(205)
}

// A pool that stops gives back tasks that wait for their turn.
func TestStopWhileWaitingForATurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	block := make(chan struct{})
	w := b.Work(
		workers.Config{Slots: 1},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			<-block
			return insertEffect(ctx, tx, job, args)
		}, nil),
	)
	b.EnqueueMany(30)
	b.Await(
		"one to run and others to wait",
		func() bool { return w.KindStatus().Running == 1 && w.KindStatus().InFlight == workers.DefaultSlots },
	)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Stop()
	}()
	b.Await("the others to be given back", func() bool { return w.KindStatus().InFlight == 1 })
	close(block)
	<-stopped
	if n := one[int](
		b, "select count(*)::integer from taskledger.event where type <> 'enqueued' and type <> 'started'",
	); n != 1 {
		t.Errorf("%d outcomes, want one", n)
	}
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitSucceeded(30)
	b.WantOneEffectEach(30)
}

// A kind's own slots are changed while its handlers run: additional ones are used at once, a lower number takes
// effect as handlers return.
func TestKindSlots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	gate := make(chan struct{})
	var running atomic.Int64
	// No task is taken over from a worker that is slow: each has one effect.
	w := b.Work(workers.Config{LeaseTTL: time.Minute}, b.atLeast(func(
		ctx context.Context, job *workers.Job, args orderArgs,
	) error {
		running.Add(1)
		defer running.Add(-1)
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		return b.outside(ctx, job, args)
	}, &workers.KindConfig{Slots: 2}))
	b.EnqueueMany(100)
	runs := func(n int64) {
		t.Helper()
		b.Await(fmt.Sprint(n, " to run"), func() bool { return running.Load() == n })
	}
	set := func(n int) {
		t.Helper()
		if err := w.SetKindSlots(order.Name(), n); err != nil {
			t.Fatal(err)
		}
	}
	runs(2)
	set(20)
	runs(20)
	if got := w.KindStatus(); got.Slots != 20 || got.InFlight > 60 {
		t.Errorf("%d slots and %d in flight", got.Slots, got.InFlight)
	}
	set(1)
	for range 25 {
		gate <- struct{}{}
	}
	runs(1)
	set(0)
	runs(workers.DefaultSlotsOutside)
	for _, n := range []int{-1, 1_000_000} {
		if err := w.SetKindSlots(order.Name(), n); err == nil {
			t.Errorf("%d was taken", n)
		}
	}
	if err := w.SetKindSlots("test.nothing", 1); err == nil {
		t.Error("an unknown kind was taken")
	}
	set(8000)
	close(gate)
	b.AwaitSucceeded(100)
	b.WantOneEffectEach(100)
}

// A worker with fewer connections than ExactlyOnce slots logs a warning when it begins, and when its slots are
// changed. It does not if the slots over all kinds are fewer.
func TestFewConnectionsAreLogged(t *testing.T) {
	t.Parallel()
	const warning = "more ExactlyOnce slots than connections"
	for name, test := range map[string]struct {
		slots, overall, raised int
		want                   int
	}{
		"enough":           {slots: 2, want: 0},
		"too few":          {slots: 3, want: 1},
		"few over all":     {slots: 30, overall: 2, want: 0},
		"too few after it": {slots: 2, raised: 8, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			config := b.DB.Config()
			config.MaxConns = 5
			db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
			t.Cleanup(db.Close)
			var log lockedBuffer
			w := b.Work(workers.Config{DB: db, Slots: test.overall, Logger: slog.New(slog.NewTextHandler(&log, nil))},
				b.exactly(insertEffect, &workers.KindConfig{Slots: test.slots}))
			b.EnqueueMany(1)
			b.AwaitSucceeded(1)
			if test.raised > 0 {
				if err := w.SetKindSlots(order.Name(), test.raised); err != nil {
					t.Fatal(err)
				}
			}
			if n := strings.Count(log.String(), warning); n != test.want {
				t.Errorf("%d warnings, want %d:\n%s", n, test.want, log.String())
			}
		})
	}
}

// lockedBuffer is a buffer that is safe for concurrent writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
