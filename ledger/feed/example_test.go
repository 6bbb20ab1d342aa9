package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A reader that has lost its output for some events rewinds to an earlier place.
func ExampleFeed_Rewind() {
	ctx := context.Background()
	pool, done := ledgertest.Example(ledgertest.App, "relay")
	defer done()

	failedTwice(ctx, pool)
	reader, err := feed.Open(ctx, pool, "example", &feed.Options{PageSize: 3})
	if err != nil {
		log.Fatal(err)
	}
	read := func(pages int) {
		for range pages {
			page, err := reader.Next(ctx)
			if err != nil {
				log.Fatal(err)
			}
			if err := page.Advance(ctx, nil, json.RawMessage(`{"copy": 1}`)); err != nil {
				log.Fatal(err)
			}
			fmt.Println(len(page.Events), "events from version", page.Events[0].Version)
		}
	}
	read(2)
	places, err := reader.Places(ctx, 0, 2) // newest first
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("back to place", places[1].N)
	if err := reader.Rewind(ctx, places[1], json.RawMessage(`{"copy": 2}`)); err != nil {
		log.Fatal(err)
	}
	read(1)
	// Output:
	// 3 events from version 1
	// 2 events from version 4
	// back to place 2
	// 2 events from version 4
}

// A reader that was interrupted continues after the last page it advanced.
func ExampleOpen() {
	ctx := context.Background()
	pool, done := ledgertest.Example(ledgertest.App, "relay")
	defer done()

	failedTwice(ctx, pool)
	for range 2 {
		reader, err := feed.Open(ctx, pool, "example", &feed.Options{PageSize: 3})
		if err != nil {
			log.Fatal(err)
		}
		page, err := reader.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range page.Events {
			fmt.Println(e.Version, e.Type)
		}
		// A projection advances in the transaction that writes its tables.
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return page.Advance(ctx, tx, nil) })
		fmt.Println("advanced:", err)
	}
	// Output:
	// 1 enqueued
	// 2 started
	// 3 failed
	// advanced: <nil>
	// 4 released
	// 5 failed
	// advanced: <nil>
}

// failedTwice returns a task with several events, for the examples that read.
func failedTwice(ctx context.Context, db ledger.DB) ledger.Key {
	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	if _, err := ledger.Enqueue(ctx, db, key, json.RawMessage(`{"percent": 10}`), nil); err != nil {
		log.Fatal(err)
	}
	for i, eventType := range []ledger.EventType{
		ledger.EventStarted, ledger.EventFailed, ledger.EventReleased, ledger.EventFailed,
	} {
		r := ledger.AppendRequest{Key: key, Expected: ledger.Version(i + 1), Type: eventType}
		if eventType == ledger.EventFailed {
			r.Data = json.RawMessage(fmt.Sprintf(`{"error": {"message": "mail server refused at version %d"}}`, i+2))
		}
		if _, err := ledger.Append(ctx, db, r); err != nil {
			log.Fatal(err)
		}
	}
	return key
}
