package feed

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

// Wake ends the sleep of a feed. While a connection listens for it on the channel [WakeChannel] of the database, a feed
// without events polls at growing intervals, up to a quarter of a second. Statements that enqueue tasks meanwhile
// notify the connection. A Wake is for one feed. It is safe for concurrent use.
type Wake struct {
	signal      chan struct{}
	isListening atomic.Bool
}

// WakeChannel is the channel of NOTIFY on which a feed that sleeps is notified.
const WakeChannel = "taskledger"

// NewWake returns a Wake for which no connection listens yet.
func NewWake() *Wake { return &Wake{signal: make(chan struct{}, 1)} }

// SetListening sets whether a connection listens. The feed polls at once, and then at the intervals that follow.
func (w *Wake) SetListening(isListening bool) {
	w.isListening.Store(isListening)
	w.Signal()
}

// Signal reports a notification.
func (w *Wake) Signal() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

const (
	// A feed without a Wake polls at least this often, unless its Gather is long.
	maxIdle = 10 * time.Millisecond
	// A feed with one sleeps at least and at most so long. A transaction that inserted before the sleep, and commits
	// within it, does not notify. Its events wait for a part of the time that they had waited for their commit.
	minAsleep = 4 * time.Millisecond
	maxAsleep = 250 * time.Millisecond
	// idleShare: the sleep is one part in idleShare of the time without events.
	idleShare = 4
	// sleepMargin is how much longer than its sleep a feed is notified: it may be late.
	sleepMargin = time.Second
)

// rest is the sleep of a feed between two polls without events.
type rest struct {
	wake  *Wake // or nil
	least time.Duration
	since time.Time // of the last events
}

// length returns how long to sleep after a poll without events, and how long notifications are asked for: 0 for none.
func (r *rest) length(now time.Time) (sleep, notified time.Duration) {
	least, most := r.least, max(maxIdle, 5*r.least)
	isListening := r.wake != nil && r.wake.isListening.Load()
	if isListening {
		least, most = max(least, minAsleep), maxAsleep
	}
	sleep = min(max(now.Sub(r.since)/idleShare, least), most)
	if isListening {
		notified = sleep + sleepMargin
	}
	return sleep, notified
}

// sleep waits for d, for a notification, or until ctx is done.
func (r *rest) sleep(ctx context.Context, d time.Duration) error {
	if r.wake == nil {
		return loop.Sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.wake.signal:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
