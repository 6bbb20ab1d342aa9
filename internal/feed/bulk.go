package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Bulk returns the feed's open window, and opens the next if none is open. Its reader selects the events by the
// window's snapshot, in its own order, and records its progress by [Feed.Mark]. It reports false if there is no event
// to read now. Pages are not read before [Feed.Pass].
//
// Errors: as of [Feed.Next].
func (f *Feed) Bulk(ctx context.Context) (Window, bool, error) {
	if f.place.isOpen() {
		return f.place.Window, true, nil
	}
	options := f.options
	options.PageSize = 0 // the events are not needed
	w, err := openWindow(ctx, f.db, f.windowSQL, f.place.Seen, f.database.incarnation, options, memory{}, 0)
	if err != nil || !w.isOpen {
		return Window{}, false, err
	}
	f.place.Until, f.place.After, f.opened = w.until, 0, f.now()
	return f.place.Window, true, nil
}

// Mark appends a cursor row at the place of the feed, with a new mark. db is a transaction; if it does not commit,
// open the feed again. Call it only when all pages read are advanced.
//
// Errors: as of [Page.Advance].
func (f *Feed) Mark(ctx context.Context, db ledger.DB, mark json.RawMessage) error {
	if err := appendCursor(ctx, db, f.reader, f.n, f.place, mark, f.database, false); err != nil {
		return err
	}
	f.n++
	return nil
}

// Pass is [Feed.Mark] after the open window: the reader has processed all of its events. They are not audited.
func (f *Feed) Pass(ctx context.Context, db ledger.DB, mark json.RawMessage) error {
	if f.place.isOpen() {
		f.place = f.place.finished()
	}
	f.place.unaudited = stretch{since: f.place.Seen.Snapshot}
	return f.Mark(ctx, db, mark)
}

// PollTo is [Feed.Poll] up to the place of another reader, which must not be before the feed's. It reports false if
// the feed has reached it. Its pages are not audited.
func (f *Feed) PollTo(ctx context.Context, to Place) (Page, bool, error) {
	f.rest.polled = time.Time{} // the next window follows another reader's
	for f.place.Place != to {
		inWindowOf := f.place.Seen == to.Seen // to is in the window that begins here
		switch {
		case f.place.isOpen():
		case inWindowOf:
			f.place.Until = to.Until
		default:
			f.place.Until = to.Seen
		}
		read, err := readPage(ctx, f.db, f.pageSQL, f.place, f.options, memory{expected: f.pageLen})
		if err == nil {
			err = f.logins.fill(ctx, f.db, read.events, read.logins)
		}
		if err == nil {
			_, err = f.addArchived(ctx, &read)
		}
		if err != nil {
			return Page{}, false, fmt.Errorf("feed %s: %w", f.reader, err)
		}
		events, w := read.events, f.place.Window
		f.pageLen = len(events)
		if inWindowOf {
			events = upTo(events, to.After)
		}
		switch {
		case inWindowOf && (!read.more || len(events) < len(read.events) || events[len(events)-1].Position == to.After):
			f.place.Place = to
		case read.more:
			f.place.After = events[len(events)-1].Position
		default:
			f.place = f.place.finished()
		}
		if len(events) > 0 {
			return f.newPage(w, events), true, nil
		}
	}
	return Page{}, false, nil
}

// upTo returns the events up to a position.
func upTo(events []ledger.Event, last ledger.Position) []ledger.Event {
	n := len(events)
	for n > 0 && events[n-1].Position > last {
		n--
	}
	return events[:n]
}
