package workers

import (
	"context"
	"sync"
)

// queue holds what waits to be taken in one go by one reader. Adding never blocks; what is
// added is bounded by what may be in hand.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	taken []T           // last, whose memory is used again
	wake  chan struct{} // holds a token if there may be items
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) add(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for items and returns at most limit of them, oldest first; none once ctx is done.
// The slice is the caller's until the next call.
func (q *queue[T]) take(ctx context.Context, limit int) []T {
	for ctx.Err() == nil {
		if items := q.takeNow(limit); len(items) > 0 {
			return items
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

func (q *queue[T]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}

// takeNow is take without the wait.
func (q *queue[T]) takeNow(limit int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := q.taken[:0]
	clear(q.taken)
	if n := min(limit, len(q.items)); n < len(q.items) {
		q.taken, q.items = q.items[:n:n], q.items[n:]
	} else {
		q.taken, q.items = q.items, again
	}
	return q.taken
}
