package feed

import (
	"context"

	"github.com/taskledger/taskledger/ledger"
)

// Between returns the next events that a reader was given between two of its places, in the order of the feed and at
// most limit, and the place after them: to, if there are no others. It may return no events and yet another place.
// The events have no Login. It reads on any connection to the primary, and locks nothing.
func Between(ctx context.Context, db ledger.DB, from, to Place, limit int) ([]ledger.Event, Place, error) {
	inWindowOf := from.Seen == to.Seen // to is in the window that begins at from, or that is open there
	w := from
	switch {
	case from == to, inWindowOf && !to.isOpen():
		return nil, to, nil
	case !from.isOpen() && inWindowOf:
		w.Until = to.Until
	case !from.isOpen():
		w.Until = to.Seen
	}
	options := Options{PageSize: limit, PageBytes: maxBetweenBytes}
	read, err := readPage(ctx, db, pageSQL, place{Place: w}, options, limit)
	if err != nil {
		return nil, from, err
	}
	events := read.events
	if read.more {
		w.After = events[len(events)-1].Position
	} else {
		w = place{Place: w}.finished().Place
	}
	if !inWindowOf {
		return events, w, nil
	}
	for i, e := range events {
		if e.Position > to.After {
			return events[:i], to, nil
		}
	}
	if !read.more || w.After >= to.After {
		w = to
	}
	return events, w, nil
}

// maxBetweenBytes bounds the size of the events that Between returns.
const maxBetweenBytes = 8 << 20
