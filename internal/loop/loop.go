// Package loop contains the parts that every background service needs: a sleep that a context ends, a back-off, and one
// contract for running and stopping.
//
// # The contract
//
// A service has one method, Run(ctx) error. Run blocks. It returns nil after ctx is done and all goroutines
// of Run have ended. It retries through outages of PostgreSQL and NATS. It returns an error only if
// continuing is useless or harmful; the service may be run again after the cause is removed.
package loop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Sleep waits for d or until ctx is done. It returns nil, or the cause of ctx. If d is not positive it does
// not wait.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// grid is the interval at whose multiples, since the process began, long sleeps of idle loops end.
const grid = 250 * time.Millisecond

var began = time.Now()

// Align shortens a sleep of at least 250 ms so that it ends together with the sleeps of other loops in the process.
// Loops that wake up at the same moment cost less than loops that wake up one by one.
func Align(d time.Duration) time.Duration {
	if d < grid {
		return d
	}
	return d - ((time.Since(began)+d)%grid+grid)%grid // a clock of a test may be before began
}

// Rest returns the pause after work that took cost, so that such work takes at most one part in share of the time. It
// never exceeds most, because an outage of the database or a busy machine may be a part of cost.
func Rest(cost time.Duration, share int, most time.Duration) time.Duration {
	if cost > most { // the product may overflow
		return most
	}
	return min(time.Duration(share-1)*cost, most)
}

// Backoff is a delay that doubles with each failure. The zero value goes from 50 ms to 5 s.
// It is for one goroutine.
type Backoff struct {
	Min time.Duration // Default: 50 ms.
	Max time.Duration // Default: 5 s.
	// Exact turns off the random quarter that is added or subtracted, which keeps processes that failed
	// together from retrying together. Default: disabled.
	Exact bool

	last time.Duration
}

// Next returns the delay after another failure.
func (b *Backoff) Next() time.Duration {
	first, most := b.Min, b.Max
	if first == 0 {
		first = 50 * time.Millisecond
	}
	if most == 0 {
		most = 5 * time.Second
	}
	b.last = min(max(2*b.last, first), most)
	if b.Exact {
		return b.last
	}
	return Jitter(b.last)
}

// Reset sets the next delay to Min.
func (b *Backoff) Reset() { b.last = 0 }

// Jitter returns d plus or minus a random part of up to a quarter of it.
func Jitter(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d*3/4 + rand.N(d/2)
}

// Steps is a service that repeats one step.
type Steps struct {
	// Step executes one piece of work and returns the delay before the next one. Required.
	Step func(ctx context.Context) (wait time.Duration, err error)
	// Stop returns the error with which Run ends after the error of a step, or nil if Run retries the step.
	// Default: retry after every error.
	Stop func(err error) error
	// Failed reports an error after which Run retries the step. Default: disabled.
	Failed func(ctx context.Context, err error, in time.Duration)
	// Backoff is the delay after consecutive failures.
	Backoff Backoff
}

// Run repeats the step until ctx is done, and then returns nil, see the package comment.
func (s Steps) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		wait, err := s.Step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			s.Backoff.Reset()
		default:
			if s.Stop != nil {
				if final := s.Stop(err); final != nil {
					return final
				}
			}
			wait = max(wait, s.Backoff.Next())
			if s.Failed != nil {
				s.Failed(ctx, err, wait)
			}
		}
		if Sleep(ctx, wait) != nil {
			return nil
		}
	}
	return nil
}

// restartAfter is the delay after which a service that failed is started again.
const restartAfter = 5 * time.Second

// Keep runs a service of a group until ctx is done. It starts the service again 5 s after it has ended, because an
// operator may have removed the cause. The group's other services continue meanwhile. Keep calls failed with the
// service's error, but not again for an error with the same text. A nil error means that the service ended by itself.
func Keep(ctx context.Context, run func(context.Context) error, failed func(error)) {
	for last := ""; ; {
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); text != last {
			last = text
			failed(err)
		}
		if Sleep(ctx, restartAfter) != nil {
			return
		}
	}
}
