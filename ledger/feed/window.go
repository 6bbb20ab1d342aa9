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

var errHasXID = errors.New("a window cannot be opened in a transaction that has written")

// openWindow opens the window that follows seen, which was taken in the given incarnation of the database. It
// reports false if nothing can have become visible since.
func openWindow(ctx context.Context, db ledger.DB, sql string, seen Edge, incarnation string) (until Edge, changed bool,
	err error) {
	var standby, hasXID bool
	var now string
	var top int64
	var bound *string
	_, err = pgquery.Row(ctx, db, sql, []any{seen.Snapshot, int64(seen.Top), seen.Bound},
		&standby, &hasXID, &now, &until.Snapshot, &top, &bound)
	switch {
	case err != nil:
		return Edge{}, false, err
	case standby:
		return Edge{}, false, ErrNotPrimary
	case now != incarnation:
		return Edge{}, false, ErrCrashed
	case hasXID:
		return Edge{}, false, errHasXID
	case bound == nil:
		return Edge{}, false, nil
	}
	until.Top, until.Bound = ledger.Position(top), *bound
	return until, true, nil
}

// readPage reads a page of the window open at p, which may have about the given number of events, and the ids of
// their logins. It reports whether more follow.
func readPage(ctx context.Context, db ledger.DB, sql string, p place, o Options, expected int) (events []ledger.Event,
	logins []int32, more bool, err error) {
	rows, err := db.Query(ctx, sql, p.PageArgs(p.After, o.PageSize+1)...) // one more shows whether the window ends here
	if err != nil {
		return nil, nil, false, err
	}
	bytes := 0
	var login int32
	for e, err := range ledger.ScanEvents(rows, &login) {
		if err != nil {
			return nil, nil, false, err
		}
		if len(events) == o.PageSize || bytes > o.PageBytes {
			return events, logins, true, nil
		}
		if n := len(events); n > 0 && e.Position <= events[n-1].Position {
			return nil, nil, false, &ledger.CorruptError{What: "page",
				Err: errors.New("its events are not in position order")}
		}
		if events == nil {
			length := min(o.PageSize, max(16, expected))
			events, logins = make([]ledger.Event, 0, length), make([]int32, 0, length)
		}
		events, logins = append(events, e), append(logins, login)
		bytes += len(e.Data) + len(e.Meta)
	}
	return events, logins, false, nil
}
