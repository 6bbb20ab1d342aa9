package workers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
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
