package queue_test

import (
	"context"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/workers/internal/queue"
)

// TryTake returns the oldest items, at most as many as its limit.
func TestTryTake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		items []int
		limit int
		want  [][]int // results of successive calls
	}{
		"empty":         {limit: 3, want: [][]int{nil}},
		"below limit":   {items: []int{1, 2}, limit: 3, want: [][]int{{1, 2}, nil}},
		"at limit":      {items: []int{1, 2, 3}, limit: 3, want: [][]int{{1, 2, 3}, nil}},
		"above limit":   {items: []int{1, 2, 3, 4, 5}, limit: 2, want: [][]int{{1, 2}, {3, 4}, {5}, nil}},
		"one at a time": {items: []int{1, 2}, limit: 1, want: [][]int{{1}, {2}, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := queue.New[int]()
			q.Add(test.items...)
			for _, want := range test.want {
				got := append([]int(nil), q.TryTake(test.limit)...)
				if diff := difference.Of(want, got); diff != "" {
					t.Error(diff)
				}
			}
			if !q.IsEmpty() {
				t.Error("the queue is not empty")
			}
		})
	}
}

// Items that are added after a batch was taken do not change that batch.
func TestBatchIsValidUntilTheNextCall(t *testing.T) {
	t.Parallel()
	q := queue.New[int]()
	q.Add(1, 2, 3)
	batch := q.TryTake(2)
	q.Add(4, 5)
	if diff := difference.Of([]int{1, 2}, batch); diff != "" {
		t.Error(diff)
	}
	if diff := difference.Of([]int{3, 4, 5}, q.TryTake(10)); diff != "" {
		t.Error(diff)
	}
}

// Take returns an empty slice once its context is done.
func TestTakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := queue.New[int]()
	q.Add(1)
	if got := q.Take(ctx, 1); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if q.IsEmpty() {
		t.Error("the item is gone")
	}
}

// One reader gets each item of concurrent writers once, and each writer's items in order.
func TestConcurrentAdd(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 500
	type item struct{ writer, number int }
	q := queue.New[item]()
	var adding sync.WaitGroup
	for w := range writers {
		adding.Go(func() {
			for n := range each {
				q.Add(item{writer: w, number: n})
			}
		})
	}
	next := make([]int, writers)
	for total := 0; total < writers*each; {
		batch := q.Take(t.Context(), 7)
		if len(batch) == 0 || len(batch) > 7 {
			t.Fatalf("a batch of %d items", len(batch))
		}
		for _, i := range batch {
			if i.number != next[i.writer] {
				t.Fatalf("item %d of writer %d, want item %d", i.number, i.writer, next[i.writer])
			}
			next[i.writer]++
			total++
		}
	}
	adding.Wait()
	if !q.IsEmpty() {
		t.Error("the queue is not empty")
	}
}

// A queue that is never empty uses its memory again.
func TestAddAllocations(t *testing.T) {
	q := queue.New[int]()
	q.Add(make([]int, 3000)...)
	group := make([]int, 1000)
	next := func() {
		q.Add(group...)
		q.TryTake(len(group))
	}
	next()
	if got := testing.AllocsPerRun(100, next); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
