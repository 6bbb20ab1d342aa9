package scheduler_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
)

// AfterDiscard counts, kind by kind, the tasks that this scheduler has discarded, and no others.
func TestHookAfterDiscard(t *testing.T) {
	t.Parallel()
	b := setupLimit(t, 3)
	other := ledger.Kind("test.other")
	limit := ledger.Limit{Kind: other, MaxWaiting: 1, Policy: ledger.DiscardOldest}
	if err := ledger.SetLimit(b.Context(), b.DB, limit, ""); err != nil {
		t.Fatal(err)
	}
	calls, want := map[ledger.Kind][]int{}, map[ledger.Kind][]int{}
	s := servicetest.Try(scheduler.New(scheduler.Config{DB: b.DB, Hook: scheduler.Hook{
		AfterDiscard: func(_ context.Context, k ledger.Kind, tasks int) { calls[k] = append(calls[k], tasks) },
	}}))(t)
	step := func(what string) {
		t.Helper()
		if err := s.Discard(b.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := difference.Of(want, calls); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	b.EnqueueMany(3)
	b.Project()
	step("as many wait as may")

	b.EnqueueRound("p", 5)
	for i := range 3 {
		k := ledger.Key{Kind: other, BizID: ledger.BizID(fmt.Sprint(i))}
		servicetest.Try(ledger.Enqueue(b.Context(), b.DB, k, nil, nil))(t)
	}
	b.Project()
	want[servicetest.Order.Name()], want[other] = []int{5}, []int{2}
	step("two kinds over their limits")
	step("discarded, and not counted yet")

	b.EnqueueRound("q", 4)
	b.Project()
	b.append(ledger.AppendRequest{Key: orderKey("p-0002"), Expected: 1, Type: ledger.EventCancelled})
	want[servicetest.Order.Name()] = []int{5, 3}
	step("one was cancelled meanwhile")

	b.EnqueueRound("r", 2)
	b.discard(b.scheduler())
	b.Project()
	step("another scheduler has discarded")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	if _, err := scheduler.New(scheduler.Config{}); err == nil || err.Error() != "scheduler: DB is required" {
		t.Error(err)
	}
}
