package reconciler

import "context"

// Pass checks all kinds once.
func (r *Reconciler) Pass(ctx context.Context) error { return r.pass(ctx) }
