package workers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// in returns entries of a partition.
func in(partition string, ids ...string) (entries []ledger.Entry) {
	for _, id := range ids {
		entries = append(entries, ledger.Entry{Key: order.Key(ledger.BizID(id)), Args: []byte(`{}`),
			Options: &ledger.EnqueueOptions{Partition: partition}})
	}
	return entries
}

func numbered(name string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%03d", name, i))
	}
	return ids
}

// The partitions take turns: those that wait when dispatcher and worker start, and those that arrive. Tasks without a
// partition are one of them.
func TestPartitionsTakeTurns(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]func(*bundle){
		"from the events": func(*bundle) {}, "from the list": (*bundle).list,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPartitionsTakeTurns(setup(t), list)
		})
	}
}

func testPartitionsTakeTurns(b *bundle, list func(*bundle)) {
	t := b.T
	t.Helper()
	b.enqueue(0, nil, in("big", numbered("big", 200)...)...)
	b.enqueue(0, []string{"none-1"})
	b.enqueue(0, nil, in("small", "small-1", "small-2")...)
	b.enqueue(ledger.PriorityUrgent, []string{"urgent"})
	list(b)
	b.Dispatch()
	w := newInTurn(b)
	wantOrder(t, "after the start", w.next(6),
		"urgent", "none-1", "big-000", "small-1", "big-001", "small-2")
	w.enqueueIn("1", "other", "other-1", "other-2")
	wantOrder(t, "arrived", w.next(4), "other-1", "big-002", "other-2", "big-003")
	close(w.gate)
	b.AwaitSucceeded(200 + 1 + 2 + 1 + 2 + 1)
	ledgertest.Check(t, b.DB)
}

// Partitions get shares by the weights that an operator sets, also while dispatcher and worker run.
func TestPartitionsShareByWeight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, partition := range []string{"big", "even", "tiny"} {
		b.enqueue(0, nil, in(partition, numbered(partition, 200)...)...)
	}
	set := func(partition string, weight float64) {
		t.Helper()
		if err := ledger.SetPartitionWeight(t.Context(), b.DB, partition, weight, "op"); err != nil {
			t.Fatal(err)
		}
	}
	set("big", 3)
	set("tiny", 0.01)
	b.Dispatch()
	w := newInTurn(b)
	wantShares(t, "3:1", w.next(60), map[string]int{"big": 45, "even": 15})
	set("big", 0.25)
	if isKnown, err := ledger.RemovePartitionWeight(t.Context(), b.DB, "tiny"); !isKnown || err != nil {
		t.Fatal(isKnown, err)
	}
	w.reread()
	w.next(16) // in which the low partitions make up for nothing, and the one that was ahead waits
	wantShares(t, "1:4:4", w.next(90), map[string]int{"big": 10, "even": 40, "tiny": 40})
	close(w.gate)
	b.AwaitSucceeded(3*200 + 1)
	ledgertest.Check(t, b.DB)
}

// wantShares reports an error if a partition has got more than two tasks more or less than its share.
func wantShares(t *testing.T, what string, begun []string, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for _, id := range begun {
		partition, _, _ := strings.Cut(id, "-")
		got[partition]++
	}
	for _, partition := range []string{"big", "even", "tiny"} {
		if d := got[partition] - want[partition]; d < -2 || d > 2 {
			t.Errorf("%s: %v began, want %v", what, got, want)
		}
	}
}

// reread returns when the dispatcher has read the weights since the call: with the sessions, among which it finds
// another worker.
func (w *inTurn) reread() {
	w.T.Helper()
	late := ledger.MustKind[orderArgs]("test.late")
	begun := make(chan struct{}, 1)
	w.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(late, func(context.Context, *workers.Job, orderArgs) error {
			begun <- struct{}{}
			return nil
		}, nil))
	})
	try(late.Enqueue(w.Context(), w.DB, "1", orderArgs{}, nil))(w.T)
	select {
	case <-begun:
	case <-time.After(time.Minute):
		w.T.Fatal("the task of the late worker has not begun")
	}
}

// enqueueIn enqueues tasks of a partition, and returns when the dispatcher has them.
func (w *inTurn) enqueueIn(mark, partition string, ids ...string) {
	w.T.Helper()
	w.enqueue(0, nil, in(partition, ids...)...)
	w.enqueueAndAwait(mark, 0)
}

// A worker in SQL claims from the listed partitions of the highest priority in turn, and its next call goes on with the
// next partition. Tasks that it cannot claim do not stop it.
func TestClaimNextTakesTurns(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	b.enqueue(0, nil, in("a", numbered("a", 30)...)...)
	b.enqueue(0, nil, in("b", "b-1", "b-2")...)
	b.enqueue(0, nil, in("c", "c-1")...)
	b.enqueue(0, []string{"none-1"})
	urgent := in("z", "urgent-1")
	urgent[0].Options.Priority = ledger.PriorityUrgent
	b.enqueue(0, nil, urgent...)
	b.list()
	w, other := b.claimer("w"), b.claimer("other")
	for i, want := range []string{"urgent-1 none-1", "a-000 b-1", "c-1 a-001 b-2", "a-002"} {
		if got := w.claim(len(strings.Fields(want))); got != want {
			t.Errorf("claim %d: %s, want %s", i, got, want)
		}
	}
	if got := len(strings.Fields(other.claim(100))); got != 27 {
		t.Errorf("another worker claims %d tasks, want 27", got)
	}
	ledgertest.Check(t, b.DB)
}
