package reconciler

import (
	"context"
	"time"
)

// Walk has r read all tasks, which finds those that the projector has not listed yet.
func Walk(r *Reconciler) *Reconciler {
	r.walks = true
	return r
}

// Pass checks all kinds once.
func (r *Reconciler) Pass(ctx context.Context) error { return r.pass(ctx) }

// PauseAfter runs a pass. It returns the time until the next one.
func PauseAfter(ctx context.Context, r *Reconciler) (time.Duration, error) {
	begun := time.Now()
	err := r.pass(ctx)
	return r.pause(time.Since(begun), err), err
}
