package feed

import (
	"context"
	_ "embed"
	"errors"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/window.sql
	windowSQL string
	//go:embed sql/page.sql
	pageSQL string
)

// edge is one end of a window: a snapshot, the last position drawn when it was taken, and an
// xid newer than both.
type edge struct {
	snapshot string
	top      ledger.Position
	bound    string
}

// place is where a reader stands: behind it everything visible in seen and, if a window is
// open, those of its events up to after.
type place struct {
	seen  edge
	until edge            // the zero edge between windows
	after ledger.Position // 0 at the start of a window

	unaudited stretch // what was delivered up to here and is not audited
}

func (p place) open() bool { return p.until.snapshot != "" }

// finished is the place after the last page of the window.
func (p place) finished() place { return place{seen: p.until, unaudited: p.unaudited} }

var errHasXID = errors.New("a window cannot be opened in a transaction that has written")

// openWindow opens the window that follows seen, which was taken in the given incarnation of the
// database. It reports false if nothing can have become visible since.
func openWindow(ctx context.Context, db ledger.DB, sql string, seen edge, incarnation string) (until edge, changed bool, err error) {
	var standby, hasXID bool
	var now string
	var top int64
	var bound *string
	_, err = pgquery.Row(ctx, db, sql, []any{seen.snapshot, int64(seen.top), seen.bound},
		&standby, &hasXID, &now, &until.snapshot, &top, &bound)
	switch {
	case err != nil:
		return edge{}, false, err
	case standby:
		return edge{}, false, ErrNotPrimary
	case now != incarnation:
		return edge{}, false, ErrCrashed
	case hasXID:
		return edge{}, false, errHasXID
	case bound == nil:
		return edge{}, false, nil
	}
	until.top, until.bound = ledger.Position(top), *bound
	return until, true, nil
}

// readPage reads a page of the window open at p, which may have about so many events as expected, and
// reports whether more follow.
func readPage(ctx context.Context, db ledger.DB, sql string, p place, o Options, expected int) (events []ledger.Event, more bool, err error) {
	rows, err := db.Query(ctx, sql, p.seen.snapshot, int64(p.seen.top), p.seen.bound,
		p.until.snapshot, int64(p.until.top), int64(p.after), int64(o.PageSize+1)) // one more tells whether the window ends here
	if err != nil {
		return nil, false, err
	}
	bytes := 0
	for e, err := range ledger.ScanEvents(rows) {
		if err != nil {
			return nil, false, err
		}
		if len(events) == o.PageSize || bytes > o.PageBytes {
			return events, true, nil
		}
		if n := len(events); n > 0 && e.Position <= events[n-1].Position {
			return nil, false, &ledger.CorruptError{What: "page", Err: errors.New("its events are not in position order")}
		}
		if events == nil {
			events = make([]ledger.Event, 0, min(o.PageSize, max(16, expected)))
		}
		events = append(events, e)
		bytes += len(e.Data) + len(e.Meta)
	}
	return events, false, nil
}
