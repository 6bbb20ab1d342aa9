package attempt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Causes of the end of a handler's context. Package workers exports them.
var (
	ErrStopping  = errors.New("the worker is stopping")
	ErrTimeout   = errors.New("the attempt timed out")
	ErrExpired   = errors.New("the task's deadline has passed")
	ErrFenced    = errors.New("another process appended to the task")
	ErrCancelled = fmt.Errorf("%w: the task was cancelled", ErrFenced)
)

// deadlines creates the contexts of a kind's attempts, which end at the kind's timeout. Attempts that begin at about
// the same time share one, since a context with a deadline costs more than all other timers of a quick attempt. It is
// safe for concurrent use.
type deadlines struct {
	mu     sync.Mutex
	newest *deadline // nil if the next attempt gets a new one; guarded by mu
}

// deadline is a context that ends at a point in time. All fields are constant except attempts, which deadlines.mu
// guards.
type deadline struct {
	context.Context
	stop     context.CancelFunc
	at       time.Time
	attempts int // that use it
}

// enter returns a context derived from base that ends with the cause [ErrTimeout], d after now or up to a hundredth of
// d later. Call leave once for each call.
func (ds *deadlines) enter(base context.Context, now time.Time, d time.Duration) *deadline {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.newest == nil || ds.newest.at.Before(now.Add(d)) {
		ds.retire()
		at := now.Add(d + d/100)
		ctx, stop := context.WithDeadlineCause(base, at, ErrTimeout)
		ds.newest = &deadline{Context: ctx, stop: stop, at: at}
	}
	ds.newest.attempts++
	return ds.newest
}

// retire assigns the newest context to no further attempt. ds.mu is held.
func (ds *deadlines) retire() {
	if ds.newest != nil && ds.newest.attempts == 0 {
		ds.newest.stop()
	}
	ds.newest = nil
}

// leave ends the use of a context.
func (ds *deadlines) leave(d *deadline) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d.attempts--; d.attempts == 0 && d != ds.newest {
		d.stop()
	}
}
