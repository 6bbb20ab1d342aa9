package feed

import (
	"context"

	"github.com/taskledger/taskledger/ledger"
)

// Choice is a choice among events.
type Choice struct {
	Read  int                     // how many events to read at most
	Limit int                     // how many of them to return at most
	Wants func(ledger.Event) bool // which ones; all if nil
}

// Between returns the next events that a reader was given between two of its places, in the order of the feed, if
// choice wants them. It also returns the place after them: to, if there are no others. It may return no events and
// yet another place. The events have no Login. It reads on any connection to the primary, and locks nothing.
func Between(ctx context.Context, db ledger.DB, from, to Place, choice Choice) ([]ledger.Event, Place, error) {
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
	options := Options{PageSize: choice.Read, PageBytes: maxBetweenBytes}
	read, err := readPage(ctx, db, pageSQL, place{Place: w}, options, choice.Read)
	if err != nil {
		return nil, from, err
	}
	chosen := make([]ledger.Event, 0, choice.Limit)
	for _, e := range read.events {
		if inWindowOf && e.Position > to.After {
			return chosen, to, nil
		}
		if len(chosen) == choice.Limit {
			return chosen, w, nil
		}
		if w.After = e.Position; choice.Wants == nil || choice.Wants(e) {
			chosen = append(chosen, e)
		}
	}
	switch {
	case inWindowOf && (!read.more || w.After >= to.After):
		return chosen, to, nil
	case read.more:
		return chosen, w, nil
	}
	return chosen, place{Place: w}.finished().Place, nil
}

// maxBetweenBytes bounds the size of the events that Between returns.
const maxBetweenBytes = 8 << 20
