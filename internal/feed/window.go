package feed

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/taskledger/taskledger/internal/eventrows"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/window.sql
	windowSQL string
	//go:embed sql/page.sql
	pageSQL string
)

var errHasXID = errors.New("a window cannot be opened in a transaction that has written")

// window is the result of one statement: an edge, and the first page of the window that ends there.
type window struct {
	at     int64 // when it was read, in microseconds since 1970 of the database's clock
	until  Edge
	first  page
	isOpen bool // false: no event can have become visible since the edge before

	isAwaited bool // a process waits for outcomes
}

// page is a page of a window as it was read.
type page struct {
	events []ledger.Event
	logins []int32 // ids of the events' logins
	more   bool    // whether others follow

	isLarge bool // it ended because of its bytes
}

// openWindow opens the window that follows seen, which was taken in the given incarnation of the database, and reads
// its first page. It asks wake to notify the reader for the duration notified; a negative duration ends
// that.
func openWindow(ctx context.Context, db ledger.DB, sql string, seen Edge, incarnation string, o Options,
	m memory, notified time.Duration) (w window, err error) {
	rows, err := db.Query(ctx, sql, seen.Snapshot, int64(seen.Top), seen.Bound, int64(o.PageSize+1),
		notified.Microseconds())
	if err != nil {
		return window{}, err
	}
	defer rows.Close()
	var isStandby, hasXID bool
	var top int64
	var now, snapshot, bound *string // null after the first row
	var asleepUntil any
	var at *int64 // null after the first row
	var isAwaited *bool
	var login int32
	read := pageReader{options: o, memory: m}
	for e, err := range eventrows.Scan(rows, &isStandby, &hasXID, &top, &now, &snapshot, &bound, &asleepUntil,
		&isAwaited, &at, &login) {
		switch {
		case err != nil:
			return window{}, err
		case isStandby:
			return window{}, ErrNotPrimary
		case now != nil && *now != incarnation:
			return window{}, ErrCrashed
		case hasXID:
			return window{}, errHasXID
		case top > 0 && ledger.Position(top) < seen.Top: // the cursor is refused when the feed is opened again
			return window{}, ErrCrashed
		}
		if at != nil {
			w.at, w.isAwaited = *at, isAwaited != nil && *isAwaited
		}
		if bound != nil {
			w.until, w.isOpen = Edge{Snapshot: *snapshot, Top: ledger.Position(top), Bound: *bound}, true
		}
		if e.Position == 0 { // the row of a window without events
			break
		}
		if full, err := read.add(e, login); err != nil || full {
			w.first = read.page
			return w, err
		}
	}
	w.first = read.page
	return w, nil
}

// memory is the memory for the events of a page.
type memory struct {
	expected int         // expected number of events
	free     *freeEvents // nil: into new memory
}

// pageReader collects the events of a page up to its limits.
type pageReader struct {
	page

	options Options
	memory  memory
	bytes   int
}

// add adds the next event, unless the page is full.
func (r *pageReader) add(e ledger.Event, login int32) (full bool, err error) {
	n := len(r.events)
	if n == r.options.PageSize || r.bytes > r.options.PageBytes {
		r.more, r.isLarge = true, n < r.options.PageSize
		return true, nil
	}
	if n > 0 && e.Position <= r.events[n-1].Position {
		return false, &ledger.CorruptError{What: "page", Err: errors.New("its events are not in position order")}
	}
	if r.events == nil {
		length := min(r.options.PageSize, max(16, r.memory.expected))
		r.events, r.logins = r.memory.free.take(length), make([]int32, 0, length)
	}
	r.events, r.logins = append(r.events, e), append(r.logins, login)
	r.bytes += len(e.Data) + len(e.Meta)
	return false, nil
}

// readPage reads a page of the window open at p.
func readPage(ctx context.Context, db ledger.DB, sql string, p place, o Options, m memory) (page, error) {
	rows, err := db.Query(ctx, sql, p.PageArgs(p.After, o.PageSize+1)...) // one more shows whether the window ends here
	if err != nil {
		return page{}, err
	}
	var login int32
	read := pageReader{options: o, memory: m}
	for e, err := range eventrows.Scan(rows, &login) {
		if err != nil {
			return page{}, err
		}
		if full, err := read.add(e, login); err != nil || full {
			return read.page, err
		}
	}
	return read.page, nil
}
