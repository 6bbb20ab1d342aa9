package feed

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/taskledger/taskledger/ledger"
)

// Page is a run of events from a feed, and the place after them.
type Page struct {
	Events []ledger.Event

	db     ledger.DB
	reader string
	n      int64
	window Window // of the events; zero for events that an audit found
	runs   []run  // of a page of several windows; window is then the first one's
	place  place

	free     *freeEvents
	database database // when the page was read
	chain    *chain   // of a relaxed feed, else nil
}

// Release returns the memory of Events to the feed, for a later page. Afterwards no event of the slice may be used,
// but copies of events may, with their data. It is optional; call it at most once.
func (p Page) Release() { p.free.put(p.Events) }

// freeEvents is the memory of released pages: the largest ones, because a reader uses few pages at a time. It is safe
// for concurrent use. A nil one keeps nothing.
type freeEvents struct {
	mu     sync.Mutex
	slices [2][]ledger.Event
}

func (f *freeEvents) put(events []ledger.Event) {
	if f == nil {
		return
	}
	clear(events)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.slices {
		if cap(events) > cap(s) {
			f.slices[i], events = events[:0], s
		}
	}
}

// take returns an empty slice with room for n events.
func (f *freeEvents) take(n int) []ledger.Event {
	if f == nil {
		return make([]ledger.Event, 0, n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.slices {
		if cap(s) >= n {
			f.slices[i] = nil
			return s
		}
	}
	return make([]ledger.Event, 0, n)
}

// chain is the newest cursor row of a relaxed feed, for its pages.
type chain struct{ n atomic.Int64 }

// Advance records that this page was processed: it appends the cursor row after the page. mark is the reader's own
// note; nil: no note. For a projection, db is the transaction that wrote its tables, so that both are committed or
// neither. If db is nil, the cursor row is committed at once.
//
// Advance pages in the order in which they were read. The pages of one reader form a chain: after a page that was left
// out, the next one fails. With [Options.Relaxed], a page may be left out: the next page covers it.
//
// It returns [ErrSuperseded] if another reader of this name has advanced the cursor: roll back, stop, and
// change nothing. It returns [ErrCrashed] if the database crashed after the page was read.
func (p Page) Advance(ctx context.Context, db ledger.DB, mark json.RawMessage) error {
	switch {
	case p.chain != nil && db != nil:
		return &ledger.InvalidError{Field: "db", Rule: "must be nil for a page of a relaxed feed"}
	case p.chain != nil:
		p.n = p.chain.n.Load()
	}
	if db == nil {
		db = p.db
	}
	err := appendCursor(ctx, db, p.reader, p.n, p.place, mark, p.database, p.chain != nil)
	if err == nil && p.chain != nil {
		p.chain.n.Store(p.n + 1)
	}
	return err
}

// Cover returns the page last, changed so that its Advance also covers earlier, which was not advanced because its
// events need no processing. last is the last page that the feed has returned.
func (f *Feed) Cover(earlier, last Page) Page {
	last.n = earlier.n
	f.n = last.n + 1
	return last
}

// Renew records that this page of a relaxed feed is being processed: it appends the cursor row before the page again.
// Another process that compares the cursor with an earlier value sees that this process works. It commits. It returns
// the errors of [Page.Advance].
func (p Page) Renew(ctx context.Context) error {
	if p.chain == nil {
		return &ledger.InvalidError{Field: "page", Rule: "must be one of a relaxed feed"}
	}
	n := p.chain.n.Load()
	err := renewCursor(ctx, p.db, p.reader, n, p.database)
	if err == nil {
		p.chain.n.Store(n + 1)
	}
	return err
}

// Renew is [Page.Renew] before the first page of a relaxed feed.
func (f *Feed) Renew(ctx context.Context) error {
	return Page{db: f.db, reader: f.reader, database: f.database, chain: f.chain}.Renew(ctx)
}

// Place returns the place of a reader that has processed this page.
func (p Page) Place() Place { return p.place.Place }

// PlaceAfter returns the place of a reader that has processed the first n events of this page, at least one.
func (p Page) PlaceAfter(n int) Place {
	if n == len(p.Events) || p.window == (Window{}) {
		return p.place.Place
	}
	for _, r := range p.runs {
		switch {
		case n == r.end:
			return r.to
		case n < r.end:
			return Place{Window: windowBetween(r.from, r.to), After: p.Events[n-1].Position}
		}
	}
	return Place{Window: p.window, After: p.Events[n-1].Position}
}

// Last reports whether this page was the last of the events that were visible when its window was opened.
func (p Page) Last() bool { return !p.place.isOpen() }
