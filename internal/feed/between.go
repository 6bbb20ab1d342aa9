package feed

import (
	"context"
	"fmt"
	"strconv"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
)

// Choice selects events.
type Choice struct {
	Read  int                     // maximum number of events to read, at least 1
	Limit int                     // maximum number of events to return, at least 1
	Wants func(ledger.Event) bool // selects events; nil: all
	Bytes int                     // of the data read; the event that exceeds it is the last. Default: 8 MiB.
	// First is how many events the first statement reads; each further statement reads twice as many. The server sends
	// all events of a statement, even those beyond Bytes. Default: Read, so that one statement suffices.
	First int
}

func (c Choice) validate() error {
	if c.Read < 1 {
		return &ledger.InvalidError{Field: "read", Value: strconv.Itoa(c.Read), Rule: "must be at least 1"}
	}
	return lists.CheckLimit(c.Limit)
}

// Between returns the next events between two places of a reader that choice selects, in the order of the feed. It
// also returns the place after them, which is to if no others follow. It may return no events and an intermediate
// place. The events have no Login. It works on any connection to the primary, and locks nothing.
//
// Errors: [*ledger.InvalidError] if Read or Limit is less than 1, which would make no progress; errors of the
// database.
func Between(ctx context.Context, db ledger.DB, from, to Place, choice Choice) ([]ledger.Event, Place, error) {
	if err := choice.validate(); err != nil {
		return nil, from, fmt.Errorf("read events between two places: %w", err)
	}
	if choice.Bytes <= 0 {
		choice.Bytes = maxBetweenBytes
	}
	rows := choice.Read
	if choice.First > 0 {
		rows = min(rows, choice.First)
	}
	chosen := make([]ledger.Event, 0, min(choice.Limit, rows))
	for {
		part := choice
		part.Read, part.Limit = min(rows, choice.Read), choice.Limit-len(chosen)
		events, next, read, err := between(ctx, db, from, to, part)
		if err != nil {
			return nil, from, err
		}
		chosen, from = append(chosen, events...), next
		choice.Read -= read.events
		choice.Bytes -= read.bytes
		if read.events < part.Read || choice.Read == 0 || choice.Bytes < 0 || len(chosen) == choice.Limit {
			return chosen, from, nil
		}
		rows *= 2
	}
}

// amount is how much a statement has read.
type amount struct{ events, bytes int }

// between is Between by one statement.
func between(ctx context.Context, db ledger.DB, from, to Place, choice Choice) (
	chosen []ledger.Event, next Place, read amount, err error) {
	inWindowOf := from.Seen == to.Seen // to is in the window that begins at from, or that is open there
	w := from
	switch {
	case from == to, inWindowOf && !to.isOpen():
		return nil, to, read, nil
	case !from.isOpen() && inWindowOf:
		w.Until = to.Until
	case !from.isOpen():
		w.Until = to.Seen
	}
	options := Options{PageSize: choice.Read, PageBytes: choice.Bytes}
	p, err := readPage(ctx, db, pageSQL, place{Place: w}, options, memory{expected: choice.Read})
	if err != nil {
		return nil, from, read, err
	}
	for _, e := range p.events {
		if inWindowOf && e.Position > to.After {
			return chosen, to, read, nil
		}
		if len(chosen) == choice.Limit {
			return chosen, w, read, nil
		}
		read.events++
		read.bytes += len(e.Data) + len(e.Meta)
		if w.After = e.Position; choice.Wants == nil || choice.Wants(e) {
			chosen = append(chosen, e)
		}
	}
	switch {
	case inWindowOf && (!p.more || w.After >= to.After):
		return chosen, to, read, nil
	case p.more:
		return chosen, w, read, nil
	}
	return chosen, place{Place: w}.finished().Place, read, nil
}

// maxBetweenBytes is the default of Choice.Bytes.
const maxBetweenBytes = 8 << 20
