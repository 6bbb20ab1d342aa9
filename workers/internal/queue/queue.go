// Package queue implements a queue whose items one reader takes in batches.
package queue

import (
	"context"
	"slices"
	"sync"
)

// Queue is a first-in-first-out queue without a bound: Add never blocks. The number of tasks in flight bounds its
// items. Any number of goroutines may call Add, Len and IsEmpty; one at a time may call Await, Take and TryTake.
type Queue[T any] struct {
	mu    sync.Mutex    // guards items and batch
	items []T           // oldest first
	batch []T           // result of the last TryTake, whose memory is reused
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

// Await waits for items. It returns false once ctx is done.
func (q *Queue[T]) Await(ctx context.Context) bool {
	for ctx.Err() == nil {
		if q.Len() > 0 {
			return true
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return false
}

// Take waits for items and returns at most limit of them, oldest first. It returns an empty slice once ctx is done.
// The slice is valid until the next call.
func (q *Queue[T]) Take(ctx context.Context, limit int) []T {
	if !q.Await(ctx) {
		return nil
	}
	return q.TryTake(limit)
}

// TryTake is [Queue.Take] without waiting.
func (q *Queue[T]) TryTake(limit int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.batch)
	if n := min(limit, len(q.items)); n < len(q.items) { // the others move up, so that their memory stays in use
		q.batch = append(q.batch[:0], q.items[:n]...)
		q.items = slices.Delete(q.items, 0, n)
	} else {
		q.batch, q.items = q.items, q.batch[:0]
	}
	return q.batch
}

// Len returns the number of items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// IsEmpty reports whether there are no items.
func (q *Queue[T]) IsEmpty() bool { return q.Len() == 0 }
