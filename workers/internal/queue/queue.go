// Package queue holds items that are taken in batches by one reader.
package queue

import (
	"context"
	"sync"
)

// Queue is a first-in-first-out queue without a bound: adding never blocks. What is added is bounded by
// what may be in flight. Any number of goroutines may add; one takes.
type Queue[T any] struct {
	mu    sync.Mutex
	items []T
	taken []T           // last batch, whose memory is reused
	wake  chan struct{} // holds a token if there may be items
}

// New returns an empty queue.
func New[T any]() *Queue[T] { return &Queue[T]{wake: make(chan struct{}, 1)} }

// Add appends items.
func (q *Queue[T]) Add(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Take waits for items and returns at most limit of them, oldest first. It returns none once ctx is
// done. The slice is valid until the next call.
func (q *Queue[T]) Take(ctx context.Context, limit int) []T {
	for ctx.Err() == nil {
		if items := q.TryTake(limit); len(items) > 0 {
			return items
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// TryTake is [Queue.Take] without waiting.
func (q *Queue[T]) TryTake(limit int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	spare := q.taken[:0]
	clear(q.taken)
	if n := min(limit, len(q.items)); n < len(q.items) {
		q.taken, q.items = q.items[:n:n], q.items[n:]
	} else {
		q.taken, q.items = q.items, spare
	}
	return q.taken
}

// IsEmpty reports whether there are no items.
func (q *Queue[T]) IsEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}
