package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// tailFlags are the options of events tail.
type tailFlags struct {
	eventFilter
	limit             int
	follow, utc, data bool
}

func newEventsTailCommand(a *app) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the newest events, and with --follow also new ones",
		Long: `Show the newest events, oldest first. With --follow, continue with each event that is committed, in the
order of commits, until interrupted; -o json then prints one value a line, too.`,
		Example: "  taskledger events tail\n  taskledger events tail --follow --type failed --type buried",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.limit < 0 || f.limit > maxTail {
				return usagef("--limit must be between 0 and %d, got %d", maxTail, f.limit)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return tailEvents(ctx, a, pool, f)
			})
		},
	}
	f.addFilters(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 10, fmt.Sprintf("number of events to begin with, 0 to %d", maxTail))
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "continue with new events")
	addEventFlags(cmd, &f.utc, &f.data)
	return cmd
}

// maxTail bounds the memory of events tail.
const maxTail = 10_000

func tailEvents(ctx context.Context, a *app, db ledger.DB, f tailFlags) error {
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
	if f.limit > 0 {
		var err error
		if events, err = ledger.Newest(ctx, db, r, f.limit); err != nil {
			return err
		}
	}
	if err := a.printEvents(events, f); err != nil || !f.follow {
		return err
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
func (a *app) printEvents(events []ledger.Event, f tailFlags) error {
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
