package feed

import (
	"context"
	"sync"
	"time"
)

// Findings has the feeds of a process poll together: one reports what its polls find ([Options].Reports), and others
// follow it ([Options].Follows). While the one polls and finds no events, the others need not poll. All read the same
// ledger. A feed whose Findings have no report for half a second polls by itself, as does one whose audit is due. It is
// safe for concurrent use.
type Findings struct {
	mu sync.Mutex // guards the fields below
	// Events that became visible after since would have been found by until.
	since, until time.Time
	found        chan struct{} // closed when events are found; nil until a feed waits for it
}

// NewFindings returns Findings without a report.
func NewFindings() *Findings { return new(Findings) }

// followFor is how long a report lasts: longer than the reporting feed sleeps.
const followFor = 2 * maxAsleep

// report notes a window that was opened between two moments. Unless it followed the last window reported, or if it has
// events, nothing is known of the time before it.
func (s *Findings) report(begun, ended time.Time, isNext, hasEvents bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = begun
	if isNext && !hasEvents {
		return
	}
	s.since = ended
	if s.found != nil {
		close(s.found)
		s.found = nil
	}
}

// after returns what is known of the time after the begin of a window without events: until when its feed need not
// poll, the zero time if no feed reports; and a channel that is closed when events are found, nil if they are already.
func (s *Findings) after(polled time.Time) (quiet time.Time, found <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if polled.Before(s.since) {
		return time.Time{}, nil
	}
	if s.found == nil {
		s.found = make(chan struct{})
	}
	if s.since.IsZero() {
		return time.Time{}, s.found
	}
	return s.until.Add(followFor), s.found
}

// await waits until a feed whose last window began at a moment and had no events must poll: for d, or for longer while
// another feed reports that it finds none, but not beyond latest unless that is zero. It reports whether that feed has
// found events.
func (s *Findings) await(ctx context.Context, polled time.Time, d time.Duration, latest time.Time) (bool, error) {
	due := time.Now().Add(d)
	for {
		quiet, found := s.after(polled)
		if !latest.IsZero() && quiet.After(latest) {
			quiet = latest
		}
		if quiet.After(due) {
			due = quiet
		}
		in := time.Until(due)
		if found == nil || in <= 0 || ctx.Err() != nil {
			return found == nil, context.Cause(ctx)
		}
		timer := time.NewTimer(in)
		select {
		case <-timer.C:
		case <-found:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
