package scheduler

import (
	"context"
	"time"
)

// request asks a loop for a pass. The loop of the timers polls for all loops, so that an idle scheduler makes one
// round trip and not three.
type request chan struct{}

func newRequest() request { return make(chan struct{}, 1) }

// ask asks for a pass, unless one is asked for already.
func (r request) ask() {
	select {
	case r <- struct{}{}:
	default:
	}
}

// await waits until a pass is requested, but at most for unasked: the loop of the timers may be waiting for a lock.
func (r request) await(ctx context.Context, unasked time.Duration) {
	timer := time.NewTimer(unasked)
	defer timer.Stop()
	select {
	case <-r:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// unasked is the longest time between two passes of a loop.
const unasked = time.Second
