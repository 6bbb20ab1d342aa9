package scheduler

import (
	"context"
	"sync/atomic"
	"time"
)

// request asks a loop for a pass. The loop of the timers polls for all loops, so that an idle scheduler makes one
// round trip and not three.
type request struct {
	asked  chan struct{}
	polled atomic.Pointer[time.Time] // when a poll last found whether the loop has work
}

func newRequest() *request { return &request{asked: make(chan struct{}, 1)} }

// ask asks for a pass, unless one is asked for already.
func (r *request) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// report asks for a pass if a poll has found work, and defers the next unasked pass.
func (r *request) report(hasWork bool) {
	if hasWork {
		r.ask()
	}
	now := time.Now()
	r.polled.Store(&now)
}

// unasked is the longest time between two passes of a loop, or from the last poll to a pass: the loop of the timers may
// be waiting for a lock.
const unasked = time.Second

// await waits until a pass is asked for, or until there was neither a pass nor a poll for as long as unasked.
func (r *request) await(ctx context.Context) {
	timer := time.NewTimer(unasked)
	defer timer.Stop()
	for {
		select {
		case <-r.asked:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		polled := r.polled.Load()
		if polled == nil || time.Since(*polled) >= unasked {
			return
		}
		timer.Reset(unasked - time.Since(*polled))
	}
}
