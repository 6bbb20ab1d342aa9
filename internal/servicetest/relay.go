package servicetest

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/dispatching"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// Source is the CloudEvents source of published messages.
const Source = "taskledger/test"

// Publish publishes the message of an event. It skips the test where workers get no messages.
func (b *Bundle) Publish(e ledger.Event) {
	b.T.Helper()
	if dispatching.IsOn() {
		b.T.Skip("workers get no messages")
	}
	if err := publish(b.Context(), b, e); err != nil {
		b.T.Fatal(err)
	}
}

func publish(ctx context.Context, b *Bundle, e ledger.Event) error {
	first := e
	if e.Version != 1 {
		history, err := ledger.History(ctx, b.DB, e.Key)
		if err != nil {
			return err
		}
		first = history[0]
	}
	payload, err := first.Payload()
	if err != nil {
		return err
	}
	msg := stream.Encode(e, payload, Source, int(b.Generation.Load()))
	stream.Enclose(msg, first.Meta)
	_, err = b.JS.PublishMsg(ctx, msg)
	return err
}

// Relay publishes the events that make tasks available, as the relay does, until the test ends. Where the dispatcher
// gives out tasks, it runs in its place.
func (b *Bundle) Relay() {
	b.T.Helper()
	if dispatching.IsOn() {
		b.Dispatch()
		return
	}
	f := Try(feed.Open(b.Context(), b.DB, "relay", nil))(b.T)
	b.Start(func(ctx context.Context) error { return publishFeed(ctx, b, f) })
}

func publishFeed(ctx context.Context, b *Bundle, f *feed.Feed) error {
	for {
		page, err := f.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			f = reopen(ctx, b, f)
			continue
		}
		for _, e := range page.Events {
			if !e.Type.WakesWorkers() {
				continue
			}
			for publish(ctx, b, e) != nil { // a server is down
				if ctx.Err() != nil {
					return nil
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		if page.Advance(ctx, b.DB, nil) != nil {
			f = reopen(ctx, b, f)
		}
	}
}

// reopen opens the feed again once the database is back.
func reopen(ctx context.Context, b *Bundle, old *feed.Feed) *feed.Feed {
	for ctx.Err() == nil {
		if again, err := feed.Open(ctx, b.DB, "relay", nil); err == nil {
			return again
		}
		time.Sleep(20 * time.Millisecond)
	}
	return old
}
