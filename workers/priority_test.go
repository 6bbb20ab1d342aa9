package workers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// marker is a kind whose tasks begin at once.
var marker = ledger.MustKind[orderArgs]("test.marker")

// inTurn is a worker that runs one task at a time.
type inTurn struct {
	*bundle

	marked chan ledger.BizID // the tasks of marker that have begun
	gate   chan struct{}     // a handler ends for each value

	mu    sync.Mutex
	begun []string
}

// newInTurn starts the worker. Its handlers wait for the gate.
func newInTurn(b *bundle) *inTurn {
	w := &inTurn{bundle: b, marked: make(chan ledger.BizID, 1), gate: make(chan struct{})}
	b.Work(workers.Config{LeaseTTL: leaseTTL}, func(p *workers.Pool) error {
		p.SetAheadTime(1) // so that a task is asked for when a slot is free
		return errors.Join(
			p.Register(workers.Handle(order, func(ctx context.Context, job *workers.Job, _ orderArgs) error {
				w.mu.Lock()
				w.begun = append(w.begun, string(job.Key.BizID))
				w.mu.Unlock()
				select {
				case <-w.gate:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}, &workers.KindConfig{Slots: 1})),
			p.Register(workers.Handle(marker, func(_ context.Context, job *workers.Job, _ orderArgs) error {
				w.marked <- job.Key.BizID
				return nil
			}, nil)))
	})
	return w
}

// enqueue enqueues tasks of one priority in a transaction, and other entries.
func (b *bundle) enqueue(p ledger.Priority, ids []string, entries ...ledger.Entry) {
	b.T.Helper()
	for _, id := range ids {
		entries = append(entries, ledger.Entry{Key: order.Key(ledger.BizID(id)), Args: []byte(`{}`),
			Options: &ledger.EnqueueOptions{Priority: p}})
	}
	try(ledger.EnqueueInOrder(b.Context(), b.DB, entries))(b.T)
}

// enqueueAndAwait enqueues tasks, and returns when the dispatcher has them: with a task of marker that has begun.
func (w *inTurn) enqueueAndAwait(mark string, p ledger.Priority, ids ...string) {
	w.T.Helper()
	w.enqueue(p, ids, ledger.Entry{Key: marker.Key(ledger.BizID(mark)), Args: []byte(`{}`)})
	for {
		select {
		case id := <-w.marked:
			if string(id) == mark {
				return
			}
		case <-time.After(time.Minute):
			w.T.Fatal("the marker has not begun")
		}
	}
}

// next returns the next n tasks that begin, after those that have.
func (w *inTurn) next(n int) []string {
	w.T.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.begun)
	}
	from := count()
	for i := range n {
		if from > 0 || i > 0 {
			w.gate <- struct{}{}
		}
		w.Await("the next task to begin", func() bool { return count() == from+i+1 })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.begun[from:])
}

// Tasks of a low priority wait. Urgent ones begin next, in their order: those that wait when dispatcher and worker
// start, and those that arrive.
func TestUrgentTasksBeginNext(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]func(*bundle){
		"from the events": func(*bundle) {}, "from the list": (*bundle).list,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testUrgentTasksBeginNext(setup(t), list)
		})
	}
}

func testUrgentTasksBeginNext(b *bundle, list func(*bundle)) {
	t := b.T
	t.Helper()
	var low []string
	for i := range 200 {
		low = append(low, fmt.Sprintf("low-%03d", i))
	}
	b.enqueue(ledger.PriorityLow, low)
	b.enqueue(0, []string{"normal-1", "normal-2"})
	b.enqueue(ledger.PriorityUrgent, []string{"urgent-1", "urgent-2"})
	list(b)
	b.Dispatch()
	w := newInTurn(b)
	wantOrder(t, "after the start", w.next(3), "urgent-1", "urgent-2", "normal-1")
	w.enqueueAndAwait("1", ledger.PriorityUrgent, "urgent-3", "urgent-4")
	wantOrder(t, "arrived", w.next(3), "urgent-3", "urgent-4", "normal-2")
	close(w.gate)
	b.AwaitSucceeded(len(low) + 6 + 1)
	ledgertest.Check(t, b.DB)
}

func wantOrder(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: began %v, want %v", what, got, want)
	}
}

// A worker in SQL claims the listed tasks of the highest priority first, in their order. A place within the list has a
// priority, too.
func TestClaimNextByPriority(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	b.enqueue(ledger.PriorityLow, []string{"low-1", "low-2"})
	b.enqueue(0, []string{"normal-1"})
	b.enqueue(ledger.PriorityUrgent, []string{"urgent-1", "urgent-2"})
	b.enqueue(ledger.PriorityHigh, []string{"high-1"})
	b.list()
	w, other := b.claimer("w"), b.claimer("other")
	got := w.claim(2) + " " + other.claim(2) + " " + w.claim(3)
	if got != "urgent-1 urgent-2 high-1 normal-1 low-1 low-2" {
		t.Errorf("claimed %s", got)
	}
	task := b.Task(order.Key("urgent-1"))
	if task.State != ledger.StateRunning || task.Priority != ledger.PriorityUrgent {
		t.Errorf("%+v", task)
	}
	w.finish("urgent-1")
	ledgertest.Check(t, b.DB)
}

// The list is read by an index, at each place, however many tasks of other priorities it has.
func TestClaimNextReadsOnePriority(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	b.addTasks("test.order", "first", 20, ledger.EventEnqueued)
	b.list()
	w := b.claimer("w")
	w.claim(1) // looks up the catalogue
	few := w.blocks()
	b.Exec(`
		insert into taskledger.event (version, attempt, shard, type, priority, kind, biz_id, actor)
		select 1, 0, 0, 'enqueued', 4, 'test.order', 'low' || g, 'a' from generate_series(1, 5000) g`)
	b.list()
	if many := w.blocks(); many > few+1000 {
		t.Errorf("a claim reads %d blocks beside 5,000 tasks of a low priority, %d without", many, few)
	}
}
