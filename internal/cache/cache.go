// Package cache caches the last result of a slow read and refreshes it in the background, so that no request waits
// twice.
package cache

import (
	"context"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

const (
	// timeShare bounds reads of a large value to one part in timeShare of the time.
	timeShare = 20
	// maxRest is the longest pause after a read.
	maxRest = time.Minute
	// timeout bounds a read.
	timeout = time.Minute
)

// Value is a value that a function reads. A small value is read at each call. A large value is returned from the last
// read and refreshed in the background, during at most a twentieth of the time. The zero Value is ready for use. It is
// safe for concurrent use.
type Value[T any] struct {
	mu      sync.Mutex
	last    *call[T]  // that has succeeded; nil: none
	pending *call[T]  // the first one, or one of a large value; nil: none
	next    time.Time // from when on a large value is read again
}

// call is one read of a value.
type call[T any] struct {
	done    chan struct{} // closed at its end
	value   T
	isLarge bool
	err     error
}

// Get returns the value. read also reports whether the value is large; it may continue after ctx is done, for the next
// call. Callers must not change the data that a large value refers to.
func (v *Value[T]) Get(ctx context.Context, read func(context.Context) (value T, isLarge bool, err error)) (T, error) {
	v.mu.Lock()
	last, r := v.last, v.pending
	isLarge := last != nil && last.isLarge
	if r == nil && (!isLarge || !time.Now().Before(v.next)) {
		r = v.begin(ctx, read, isLarge || last == nil)
	}
	v.mu.Unlock()
	if isLarge {
		return last.value, nil
	}
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// begin begins a read. While a shared read is pending, other calls wait for it. v.mu is held.
func (v *Value[T]) begin(
	ctx context.Context, read func(context.Context) (T, bool, error), isShared bool,
) *call[T] {
	r := &call[T]{done: make(chan struct{})}
	if isShared {
		v.pending = r
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		begun := time.Now()
		r.value, r.isLarge, r.err = read(ctx)
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.pending == r {
			v.pending = nil
		}
		if r.err == nil {
			v.last = r
		}
		v.next = time.Now().Add(loop.Rest(time.Since(begun), timeShare, maxRest))
		close(r.done)
	}()
	return r
}
