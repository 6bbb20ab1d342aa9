// Package loop holds what every background service needs: waiting that a context ends, a back-off,
// and one contract for running and stopping.
//
// # The contract
//
// A service has one method, Run(ctx) error. Run blocks. It returns nil once ctx is done and everything
// that Run started has ended. It survives outages of PostgreSQL and NATS. It returns an error only where
// going on is useless or harmful; the service may be run again after the cause is gone.
package loop

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d or until ctx is done. It returns nil, or why ctx is done. If d is not positive it
// does not wait.
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

// Backoff is a delay that doubles with each failure. The zero value goes from 50 ms to 5 s.
// It is for one goroutine.
type Backoff struct {
	Min time.Duration // Default: 50 ms.
	Max time.Duration // Default: 5 s.
	// Exact turns off the random quarter that is added or subtracted, so that processes which failed
	// together do not come back together.
	Exact bool

	last time.Duration
}

// Next returns how long to wait after another failure.
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

// Reset makes the next delay the shortest one.
func (b *Backoff) Reset() { b.last = 0 }

// Jitter returns d plus or minus a random part of up to a quarter of it.
func Jitter(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d*3/4 + rand.N(d/2)
}

// Steps is a service made of one step that is repeated.
type Steps struct {
	// Step does a piece of work and returns how long to wait before the next one. Required.
	Step func(ctx context.Context) (wait time.Duration, err error)
	// Stop returns the error with which Run ends because of a step's error, nil if the step is to be
	// tried again. Default: steps are tried again after every error.
	Stop func(err error) error
	// Failed reports an error after which the step is tried again in a while. Default: no report.
	Failed func(ctx context.Context, err error, in time.Duration)
	// Backoff is the delay after failures in a row.
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
