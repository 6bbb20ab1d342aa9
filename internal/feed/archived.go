package feed

import (
	"context"
	_ "embed"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/archived.sql
var archivedSQL string

// Archive contains the events that the archive has removed from the ledger.
type Archive interface {
	// Reader returns a function for one goroutine.
	Reader() ArchiveReader
	// History returns the events of an archived event's task in the order of positions. It needs the event's key and
	// position. It returns none if the key was not archived or is forgotten, and no file contains the task.
	History(ctx context.Context, db ledger.DB, of ledger.Event) ([]ledger.Event, error)
}

// ArchiveReader returns the next archived events of a range, and whether others follow. It returns all events that
// were removed before the call.
type ArchiveReader func(ctx context.Context, db ledger.DB, r unexported.ArchivedRange) (
	events []ledger.Event, more bool, err error)

// Removed are archived events.
type Removed struct {
	Events      int64
	First, Last ledger.Position
}

// Archived returns the archived events of some kinds, or of all kinds if kinds is empty: those in files, and those in
// no file.
func Archived(ctx context.Context, db ledger.DB, kinds []ledger.Kind) (inFiles, inNone Removed, err error) {
	var of any
	if len(kinds) > 0 {
		of = pgarray.Of(kinds...)
	}
	return archivedBeyond(ctx, db, Beginning(), of)
}

// archivedBeyond returns the archived events that a snapshot may not see.
func archivedBeyond(ctx context.Context, db ledger.DB, seen Edge, kinds any) (inFiles, inNone Removed, err error) {
	rows, err := db.Query(ctx, archivedSQL, seen.Snapshot, kinds)
	if err != nil {
		return inFiles, inNone, pgerr.Explain("read which events are archived", err)
	}
	var hasFile bool
	var r Removed
	_, err = pgx.ForEachRow(rows, []any{&hasFile, &r.Events, (*int64)(&r.First), (*int64)(&r.Last)}, func() error {
		if hasFile {
			inFiles = r
		} else {
			inNone = r
		}
		return nil
	})
	return inFiles, inNone, pgerr.Explain("read which events are archived", err)
}

// addArchived adds the archived events to a page of the open window, which was read before, and returns the page's
// events of the table. An event that is removed between the two reads is in both.
func (f *Feed) addArchived(ctx context.Context, p *page) (own []ledger.Event, err error) {
	if f.archived == nil {
		return p.events, nil
	}
	at := f.place.Place
	r := unexported.ArchivedRange{
		From: unexported.ArchivedPlace{Seen: at.Seen.Snapshot, Until: at.Until.Snapshot, After: int64(at.After)},
		To:   unexported.ArchivedPlace{Seen: at.Until.Snapshot}, Above: int64(at.After), Last: math.MaxInt64,
		Limit: f.options.PageSize,
	}
	if p.more {
		r.Last = int64(p.events[len(p.events)-1].Position)
	}
	archived, more, err := f.archived(ctx, f.db, r)
	if err != nil || len(archived) == 0 {
		return p.events, err
	}
	own = p.events
	if more {
		own = upTo(own, archived[len(archived)-1].Position)
	}
	p.more = p.more || more
	p.events = merge(own, archived)
	if n := f.options.PageSize; len(p.events) > n {
		p.events, p.more = p.events[:n], true
		own = upTo(own, p.events[n-1].Position)
	}
	return own, nil
}

// merge returns the events of two lists in the order of positions, each once.
func merge(own, archived []ledger.Event) []ledger.Event {
	all := make([]ledger.Event, 0, len(own)+len(archived))
	for len(own) > 0 || len(archived) > 0 {
		switch {
		case len(archived) == 0 || len(own) > 0 && own[0].Position < archived[0].Position:
			all, own = append(all, own[0]), own[1:]
		case len(own) == 0 || archived[0].Position < own[0].Position:
			all, archived = append(all, archived[0]), archived[1:]
		default:
			all, own, archived = append(all, own[0]), own[1:], archived[1:]
		}
	}
	return all
}
