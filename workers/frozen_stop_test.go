package workers_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// frozenWorker is a worker whose database can be frozen.
type frozenWorker struct {
	*worker
	servicetest.Freezer
	log *lockedBuffer
}

func (b *bundle) workFrozen(c workers.Config, register func(*workers.Pool) error) frozenWorker {
	b.T.Helper()
	w := frozenWorker{log: &lockedBuffer{}}
	w.Freezer, c.DB = servicetest.NewFreezer(b.T, b.DB)
	c.Logger = slog.New(slog.NewTextHandler(w.log, nil))
	w.worker = b.Work(c, register)
	return w
}

// stops fails the test if the stopped worker does not end within patience. Then the database thaws.
func (w frozenWorker) stops(t *testing.T, meanwhile func()) {
	t.Helper()
	stopped := make(chan struct{})
	begun := time.Now()
	defer w.Thaw()
	go func() {
		defer close(stopped)
		w.Stop()
	}()
	meanwhile()
	select {
	case <-stopped:
		t.Logf("stopped after %s", time.Since(begun).Round(time.Millisecond))
	case <-time.After(patience):
		t.Error("it does not stop")
	}
}

// A worker with nothing in flight, or only tasks that have not begun, does not wait for a frozen database.
func TestStopWithNothingBegunWhileTheDatabaseIsFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	w := b.workFrozen(workers.Config{LeaseTTL: endless}, b.exactly(insertEffect, nil))
	first := b.Enqueue("o-1")
	b.AwaitState(first, ledger.StateSucceeded)
	b.Await("the worker to know it", func() bool { return w.KindStatus().InFlight == 0 })
	w.Freeze()
	second := order.Key("o-2")
	args := json.RawMessage(`{"note":"` + strings.Repeat("x", 600) + `"}`) // the worker must read them
	try(ledger.Enqueue(b.Context(), b.As("producer"), second, args, nil))(t)
	b.Await("a task that cannot begin", func() bool { return w.KindStatus().InFlight == 1 })
	w.stops(t, func() {})

	b.Work(workers.Config{LeaseTTL: endless}, b.exactly(insertEffect, nil)) // to which the task was given back
	b.AwaitState(second, ledger.StateSucceeded)
	b.WantOneEffect(second)
}

// Outcomes that the database does not take delay a stopping worker for LeaseTTL, and no longer. Its tasks in flight
// run elsewhere, and are done once.
func TestStopInTheMiddleWhileTheDatabaseIsFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	running := make(chan struct{})
	freeze := make(chan struct{})
	w := b.workFrozen(
		workers.Config{StopTimeout: 50 * time.Millisecond},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			close(running)
			<-freeze
			return insertEffect(ctx, tx, job, args)
		}, nil),
	)
	k := b.Enqueue("o-1")
	<-running
	b.AwaitState(k, ledger.StateRunning)
	w.Freeze()
	close(freeze)
	w.stops(t, func() {})
	if n := w.KindStatus().InFlight; n != 0 {
		t.Errorf("%d tasks in flight", n)
	}

	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// A slow but available database takes the outcomes of a stopping worker.
func TestStopWhileTheDatabaseIsSlow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var w frozenWorker
	ready := make(chan struct{})
	done := make(chan struct{})
	w = b.workFrozen(
		workers.Config{StopTimeout: 50 * time.Millisecond, LeaseTTL: endless},
		b.atLeast(func(ctx context.Context, job *workers.Job, args orderArgs) error {
			<-ready
			w.Freeze()
			defer close(done)
			return b.outside(ctx, job, args)
		}, workers.SetStartedAfter(endless/2, workers.KindConfig{})),
	)
	close(ready)
	k := b.Enqueue("o-1")
	<-done
	w.stops(t, func() {
		b.Await("the end of StopTimeout", func() bool {
			return strings.Contains(w.log.String(), "cancelling handlers")
		})
		w.Thaw()
	})
	if s := b.Task(k); s.State != ledger.StateSucceeded || s.Attempt != 1 {
		t.Errorf("the task is %s after attempt %d", s.State, s.Attempt)
	}
	b.WantOneEffect(k)
}
