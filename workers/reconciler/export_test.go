package reconciler

import "context"

// Walk has r read all tasks, which finds those that the projector has not listed yet.
func Walk(r *Reconciler) *Reconciler {
	r.walks = true
	return r
}

// Pass checks all kinds once.
func (r *Reconciler) Pass(ctx context.Context) error { return r.pass(ctx) }
