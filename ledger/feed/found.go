package feed

import (
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// foundPage is a page that a reporting feed has read, after begun.
type foundPage struct {
	from, to Place
	window   opening // of the page's window
	begun    time.Time
	events   []ledger.Event
	bytes    int // of the data and of the places
}

// opening is when the statement that opened a window was sent, and when it had returned: its snapshot was taken in
// between.
type opening struct{ begun, ended time.Time }

// Pages are kept up to so many events, bytes and pages: for a follower that is some tenths of a second behind.
const (
	keptEvents = 32_000
	keptBytes  = 8 << 20
	keptPages  = 1000
)

// keptFor is how long pages are kept while no event follows them, so that an idle process has none. Nor is
// one taken long after it was read, because a copy of the data may have been put back since.
const keptFor = 5 * time.Second

// foundPages are the last pages of a reporting feed. Each begins where the one before ends. A page is what the database
// has between two places, the same for each reader, so another feed may take it in place of reading it.
type foundPages struct {
	in            database // where the pages were read
	pages         []foundPage
	events, bytes int
	keptAt        time.Time // when the last page with events was added
	free          freeEvents
}

// keep adds a page with a copy of its events, and drops the oldest ones. It drops all pages before a gap, and those of
// another database.
func (s *foundPages) keep(in database, p foundPage, now time.Time) {
	if s.in != in || len(s.pages) > 0 && s.pages[len(s.pages)-1].to != p.from {
		s.drop(len(s.pages))
	}
	p.events = append(s.free.take(len(p.events)), p.events...)
	p.bytes = len(p.to.Seen.Snapshot) + len(p.to.Until.Snapshot)
	for i := range p.events {
		p.bytes += len(p.events[i].Data) + len(p.events[i].Meta)
	}
	s.in = in
	if len(p.events) > 0 {
		s.keptAt = now
	}
	s.pages = append(s.pages, p)
	s.events += len(p.events)
	s.bytes += p.bytes
	oldest := 0
	for events, bytes := s.events, s.bytes; events > keptEvents || bytes > keptBytes ||
		len(s.pages)-oldest > keptPages; oldest++ {
		events -= len(s.pages[oldest].events)
		bytes -= s.pages[oldest].bytes
	}
	s.drop(oldest)
}

// expire drops all pages if no event has followed them for keptFor.
func (s *foundPages) expire(now time.Time) {
	if now.Sub(s.keptAt) > keptFor {
		s.drop(len(s.pages))
	}
}

// drop drops the n oldest pages.
func (s *foundPages) drop(n int) {
	for _, p := range s.pages[:n] {
		s.events -= len(p.events)
		s.bytes -= p.bytes
		s.free.put(p.events)
	}
	s.pages = slices.Delete(s.pages, 0, n)
}

// after returns the pages after a place that were read after a moment, and whether that place is known: the beginning
// or the end of such a page.
func (s *foundPages) after(in database, at Place, since time.Time) (pages []foundPage, isKnown bool) {
	if s.in != in {
		return nil, false
	}
	for i, p := range slices.Backward(s.pages) {
		switch {
		case p.begun.Before(since):
			return nil, false
		case p.to == at:
			return s.pages[i+1:], true
		case p.from == at:
			return s.pages[i:], true
		}
	}
	return nil, false
}

// edgeAfter returns the last edge of a window, if it was opened after a moment.
func (s *foundPages) edgeAfter(in database, t time.Time) (Edge, opening, bool) {
	if s.in != in || len(s.pages) == 0 {
		return Edge{}, opening{}, false
	}
	p := s.pages[len(s.pages)-1]
	if !p.window.begun.After(t) {
		return Edge{}, opening{}, false
	}
	if p.to.isOpen() {
		return p.to.Until, p.window, true
	}
	return p.to.Seen, p.window, true
}

// runOf returns the first pages that together have at most so many events as a page, and end after the one that exceeds
// its bytes.
func runOf(pages []foundPage, o Options) (run []foundPage, events int) {
	bytes := 0
	for i, p := range pages {
		if events+len(p.events) > o.PageSize || bytes > o.PageBytes {
			return pages[:i], events
		}
		events += len(p.events)
		bytes += p.bytes
	}
	return pages, events
}

// copyEvents appends copies of events that share no data with them.
func copyEvents(to, events []ledger.Event) []ledger.Event {
	bytes := 0
	for i := range events {
		bytes += len(events[i].Data) + len(events[i].Meta)
	}
	memory := make([]byte, 0, bytes)
	clone := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		n := len(memory)
		memory = append(memory, b...)
		return memory[n:len(memory):len(memory)]
	}
	for _, e := range events {
		e.Data, e.Meta = clone(e.Data), clone(e.Meta)
		to = append(to, e)
	}
	return to
}
