package feed

import (
	"context"
	"sync"
	"time"
)

// Findings lets the feeds of a process share their reading: one feed reports its pages ([Options].Reports), and others
// follow it ([Options].Follows). All read the same ledger. It keeps the last pages, up to 32,000 events and 8 MiB.
// While the reporting feed finds no events, the others need not poll. A feed that is further behind or ahead reads by
// itself, and so do all while no report has arrived for half a second. It is safe for concurrent use.
type Findings struct {
	isOptional bool // possibly no feed reports

	mu       sync.Mutex // guards the fields below
	reporter *Feed      // the feed that reports
	isNew    bool       // it has not reported yet
	awaited  bool       // a process waited for outcomes when the last window was read
	// Events that became visible after since would have been found by until.
	since, until time.Time
	found        chan struct{} // closed when events are found; nil until a feed waits for it
	first        chan struct{} // closed by the first report; nil until a feed waits for it

	followed time.Time // when a feed last followed
	pages    foundPages
	next     chan struct{} // closed when a page is added; nil until a feed waits for it
}

// NewFindings returns Findings without a report.
func NewFindings() *Findings { return new(Findings) }

// followFor is how long a report is valid: longer than the reporting feed sleeps.
const followFor = 2 * maxAsleep

// report notes a window that was opened between two moments. Events may have become visible before it, unless it is
// empty and follows the last reported window.
func (s *Findings) report(begun, ended time.Time, isNext, hasEvents, isAwaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until, s.awaited = begun, isAwaited
	wake(&s.first)
	s.pages.expire(begun)
	isNext = isNext && !s.isNew
	s.isNew = false
	switch {
	case isNext && !hasEvents:
		return
	case !hasEvents: // another process may have moved the feed beyond these pages
		s.pages.drop(len(s.pages.pages))
	}
	s.since = ended
	wake(&s.found)
}

// isAwaited reports whether a process waited for outcomes when the last window was read, lately.
func (s *Findings) isAwaited() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaited && !s.isSilent()
}

// isOf reports whether feed f reports its pages. It does if no other feed has reported lately, or if the other only
// reads for others and f belongs to a service. The reports of two feeds at the same time would contradict each other.
func (s *Findings) isOf(f *Feed) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reporter != f && !s.isSilent() && (s.reporter.isService() || !f.isService()) {
		return false
	}
	s.isNew = s.isNew || s.reporter != f
	s.reporter = f
	return true
}

// end ends the reports of a feed: its followers read by themselves until another feed reports.
func (s *Findings) end(f *Feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reporter != f {
		return
	}
	s.reporter, s.until = nil, time.Time{}
	s.pages.drop(len(s.pages.pages))
	wake(&s.found)
	wake(&s.next)
}

// isSilent reports whether no feed has reported lately. s.mu is held.
func (s *Findings) isSilent() bool { return time.Since(s.until) > followFor }

// wake closes a channel that feeds wait for.
func wake(waited *chan struct{}) {
	if *waited != nil {
		close(*waited)
		*waited = nil
	}
}

// waited returns a channel that wake closes.
func waited(c *chan struct{}) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
	}
	return *c
}

// keep adds a page of the reporting feed, if a feed follows. Otherwise it drops all pages, because the last kept page
// must end at the reporting feed's place.
func (s *Findings) keep(in database, p foundPage) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.followed) >= keptFor {
		s.pages.drop(len(s.pages.pages))
		return
	}
	s.pages.keep(in, p, now)
	wake(&s.next)
}

// follow notes that a feed follows.
func (s *Findings) follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = time.Now()
}

// isFollowed reports whether a feed has followed lately.
func (s *Findings) isFollowed() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.followed) < keptFor
}

// pagesAfter returns the pages after a place that were read after a moment, at most as many events as one page may
// contain.
func (s *Findings) pagesAfter(in database, at Place, since time.Time, o Options, free *freeEvents) followedPages {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = time.Now()
	s.pages.expire(s.followed)
	pages, isKnown := s.pages.after(in, at, since)
	got := followedPages{isKnown: isKnown}
	if len(pages) == 0 {
		got.next, got.aliveUntil = waited(&s.next), s.until.Add(followFor)
		if s.pages.keptAt.After(s.until) {
			got.aliveUntil = s.pages.keptAt.Add(followFor)
		}
		return got
	}
	taken, events := firstOf(pages, o)
	got.more = taken[len(taken)-1].to != pages[len(pages)-1].to
	if events > 0 {
		got.events = free.take(events)
	}
	for _, p := range taken {
		got.events = copyEvents(got.events, p.events)
		got.runs = append(got.runs, run{p.from, p.to, len(got.events), p.window})
	}
	return got
}

// edgeAfter returns the last edge of the reporting feed and when it was read, if that was after a moment.
func (s *Findings) edgeAfter(in database, t time.Time) (Edge, opening, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages.edgeAfter(in, t)
}

// awaitFirst waits for the first report, at most for d. It does not wait if a report is optional.
func (s *Findings) awaitFirst(ctx context.Context, d time.Duration) error {
	s.mu.Lock()
	if s.isOptional || !s.until.IsZero() {
		s.mu.Unlock()
		return nil
	}
	first := waited(&s.first)
	s.mu.Unlock()
	_, err := awaitClosed(ctx, first, d)
	return err
}

// awaitClosed waits until a channel is closed, at most for d, and reports whether it is.
func awaitClosed(ctx context.Context, c <-chan struct{}, d time.Duration) (bool, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// after returns until when a follower whose last empty window began at polled need not poll (the zero time if no feed
// reports), and a channel that is closed when events are found (nil if they are already).
func (s *Findings) after(polled time.Time) (quiet time.Time, found <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = time.Now()
	if polled.Before(s.since) {
		return time.Time{}, nil
	}
	found = waited(&s.found)
	if s.since.IsZero() {
		return time.Time{}, found
	}
	return s.until.Add(followFor), found
}

// await waits until a feed whose last window began at polled and was empty must poll: for d, or for longer while
// another feed reports no events, but not beyond latest unless that is zero. It reports whether the other feed has
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
		if _, err := awaitClosed(ctx, found, in); err != nil {
			return false, err
		}
	}
}
