package periodic

import (
	"context"
	"time"
)

// SetClock adds an offset to the database's clock of r.
func (r *Runner) SetClock(offset time.Duration) { r.clock = offset }

// Pass fires all schedules that are due.
func (r *Runner) Pass(ctx context.Context) (time.Duration, error) { return r.pass(ctx) }
