package feed

import (
	"cmp"
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
	bytes    int // of the data and the places
}

// opening is when the statement that opened a window was sent, and when it had returned: its snapshot was taken in
// between.
type opening struct{ begun, ended time.Time }

// Pages are kept up to these numbers of events, bytes and pages: enough for a follower that is some tenths of a second
// behind.
const (
	keptEvents = 32_000
	keptBytes  = 8 << 20
	keptPages  = 1000
)

// keptFor is how long pages are kept while no event follows them, so that an idle process keeps no pages. After that
// time no page is used either, because a copy of the data may have been put back since it was read.
const keptFor = 5 * time.Second

// foundPages are the last pages of a reporting feed. Each begins where the previous page ends. A page contains the
// database's events between two places. They are the same for each reader, so another feed may take the page instead of
// reading it.
type foundPages struct {
	in            database // where the pages were read
	pages         []foundPage
	events, bytes int
	keptAt        time.Time // when the last page with events was added
	free          freeEvents
}

// keep adds a page with a copy of its events, and drops the oldest pages. It drops all pages before a gap, and all
// pages of another database.
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
// or the end of such a page, or a place within it. In the last case the rest of that page comes first.
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
		if n := p.indexAfter(at); n > 0 {
			return append([]foundPage{p.part(n, len(p.events))}, s.pages[i+1:]...), true
		}
	}
	return nil, false
}

// of returns the window of the page's events.
func (p *foundPage) of() Window { return windowBetween(p.from, p.to) }

// indexAfter returns the index of the event after a place within the page, or 0.
func (p *foundPage) indexAfter(at Place) int {
	if !at.isOpen() || at.Window != p.of() {
		return 0
	}
	n, isFound := slices.BinarySearchFunc(p.events, at.After, func(e ledger.Event, after ledger.Position) int {
		return cmp.Compare(e.Position, after)
	})
	if !isFound || n+1 == len(p.events) {
		return 0
	}
	return n + 1
}

// part returns the page of the events from index begin up to index end.
func (p foundPage) part(begin, end int) foundPage {
	window := p.of()
	if begin > 0 {
		p.from = Place{Window: window, After: p.events[begin-1].Position}
	}
	if end < len(p.events) {
		p.to = Place{Window: window, After: p.events[end-1].Position}
	}
	p.events = p.events[begin:end]
	return p
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

// firstOf returns the first pages, with at most as many events as one page may contain. The last page may be cut.
func firstOf(pages []foundPage, o Options) (first []foundPage, events int) {
	bytes := 0
	for _, p := range pages {
		n := 0
		for n < len(p.events) && events < o.PageSize && bytes <= o.PageBytes {
			bytes += len(p.events[n].Data) + len(p.events[n].Meta)
			n++
			events++
		}
		switch {
		case n == len(p.events):
			first = append(first, p)
			continue
		case n > 0:
			first = append(first, p.part(0, n))
		}
		break
	}
	return first, events
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
