package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// defaultTail is the number of events with which --follow begins.
	defaultTail = 10
	// maxTail bounds the memory of --tail.
	maxTail = 10_000
)

func tailEvents(ctx context.Context, a *app, db ledger.DB, f eventsFlags) error {
	r := f.selected()
	if err := r.Validate(); err != nil {
		return err
	}
	var coming *feed.Feed
	if f.follow { // it begins before the newest events are read, so that it misses none
		var err error
		if coming, err = feed.Tail(ctx, db, nil); err != nil {
			return err
		}
		if a.config.output == formatJSON {
			a.config.output = formatJSONL
		}
	}
	var events []ledger.Event
	if f.tail > 0 {
		var err error
		if events, _, err = ledger.ReadBack(ctx, db, r, ledger.BackOptions{Limit: f.tail}); err != nil {
			return err
		}
		slices.Reverse(events)
	}
	if err := a.printEvents(events, f); err != nil || !f.follow {
		if err != nil || len(events) == f.tail {
			return err
		}
		return f.noteArchived(ctx, a, db, len(events) == 0)
	}
	shown := make(map[ledger.Position]bool, len(events))
	for _, e := range events {
		shown[e.Position] = true
	}
	for {
		page, err := coming.Next(ctx)
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var next []ledger.Event
		for _, e := range page.Events {
			if r.Matches(e) && !shown[e.Position] {
				next = append(next, e)
			}
		}
		if len(next) == 0 {
			continue
		}
		if err := a.printEvents(next, f); err != nil {
			return err
		}
	}
}

// printEvents writes events in the format that was requested. Followed ones are a line each, without a header.
func (a *app) printEvents(events []ledger.Event, f eventsFlags) error {
	list := listedEvents{Events: append([]ledger.Event{}, events...)}
	return printList(a, list, events, func(w io.Writer) {
		if !f.follow {
			renderEvents(w, events, f.utc, f.data)
			return
		}
		for _, e := range events {
			line := fmt.Sprintf("%d %s %s by %s (%s)", e.Position, clock(e.RecordedAt, f.utc), e, e.Actor, e.Login)
			if f.data {
				line += " " + string(e.Data)
			}
			fmt.Fprintln(w, plain(line))
		}
	})
}
