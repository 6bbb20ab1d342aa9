package outbox_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A process that is nothing but a relay. Run as many as you like: one works.
func ExampleRelay_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	nc, err := outbox.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	relay, err := outbox.New(outbox.Config{DB: pool, NATS: nc})
	if err != nil {
		log.Fatal(err)
	}
	if err := relay.Run(ctx); err != nil {
		log.Fatal(err) // it must not go on; the error names the cure
	}
}

// What waits to be published, and what a person should see to. Without a connection to NATS it
// tells the database's part.
func ExampleReadStatus() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	for _, id := range []ledger.BizID{"A-1", "A-2"} {
		if _, err := ledger.Enqueue(ctx, pool, ledger.Key{Kind: "coupon.send", BizID: id}, nil, nil); err != nil {
			log.Fatal(err)
		}
	}
	status, err := outbox.ReadStatus(ctx, pool, nil, outbox.StreamConfig{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting:", status.Waiting)
	fmt.Println("relay at work:", status.Relay != nil)
	// Output:
	// waiting: 2
	// relay at work: false
}
