package workers

import (
	"context"
	"sync"
	"time"
)

// timeouts gives the attempts of a kind contexts that end when they have taken too long. Attempts
// that begin at about the same time share one, since a context with a deadline costs more than all
// the rest of a quick attempt's clocks. It is safe for concurrent use.
type timeouts struct {
	mu     sync.Mutex
	newest *timeout
}

// timeout is a context that ends at some time. What follows is guarded by the mutex of timeouts.
type timeout struct {
	context.Context
	stop     context.CancelFunc
	at       time.Time
	attempts int // that are in it
}

// enter returns a context derived from work that is done, with the cause [ErrTimeout], d after now,
// or later by at most a hundredth of d. It is to be left.
func (t *timeouts) enter(work context.Context, now time.Time, d time.Duration) *timeout {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newest == nil || t.newest.at.Before(now.Add(d)) {
		t.retire()
		at := now.Add(d + d/100)
		ctx, stop := context.WithDeadlineCause(work, at, ErrTimeout)
		t.newest = &timeout{Context: ctx, stop: stop, at: at}
	}
	t.newest.attempts++
	return t.newest
}

// retire lets no more attempts into the newest context. t.mu is held.
func (t *timeouts) retire() {
	if t.newest != nil && t.newest.attempts == 0 {
		t.newest.stop()
	}
	t.newest = nil
}

// leave ends what enter began.
func (t *timeouts) leave(c *timeout) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.attempts--; c.attempts == 0 && c != t.newest {
		c.stop()
	}
}
