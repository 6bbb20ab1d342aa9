package services

import "context"

// RunAndDrain is [Run] with another function in place of the API's Drain.
func RunAndDrain(ctx context.Context, c Config, drain func()) error {
	c.drain = drain
	return Run(ctx, c)
}
