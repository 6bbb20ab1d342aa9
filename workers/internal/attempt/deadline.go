package attempt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Why a handler's context is cancelled. Package workers exports them.
var (
	ErrStopping  = errors.New("the worker is stopping")
	ErrTimeout   = errors.New("the attempt timed out")
	ErrExpired   = errors.New("the task's deadline has passed")
	ErrFenced    = errors.New("the claim to the task is lost")
	ErrCancelled = fmt.Errorf("%w: the task was cancelled", ErrFenced)
)

// deadlines gives the attempts of a kind contexts that end when they have taken too long. Attempts that
// begin at about the same time share one, since a context with a deadline costs more than all other
// clocks of a quick attempt. It is safe for concurrent use.
type deadlines struct {
	mu     sync.Mutex
	newest *deadline
}

// deadline is a context that ends at a moment. The fields below the context are guarded by deadlines.mu.
type deadline struct {
	context.Context
	stop     context.CancelFunc
	at       time.Time
	attempts int // that use it
}

// enter returns a context derived from base that ends, with the cause [ErrTimeout], d after now or up to
// a hundredth of d later. Each call is followed by one of leave.
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

// retire gives the newest context to no further attempt. ds.mu is held.
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
