package outbox_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A process that runs a relay. Any number of processes may run; one relay works at a time.
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
		log.Fatal(err) // the error names the cure
	}
}

// The number of events that wait to be published, and the lease of the relay. Without a connection to NATS,
// ReadStatus reads the database only.
func ExampleReadStatus() {
	ctx := context.Background()
	pool, done := ledgertest.Example(ledgertest.App, "relay", "operator")
	defer done()

	for _, id := range []ledger.BizID{"A-1", "A-2"} {
		if _, err := ledger.Enqueue(ctx, pool, ledger.Key{Kind: "coupon.send", BizID: id}, nil, nil); err != nil {
			log.Fatal(err)
		}
	}
	status, err := relays.ReadStatus(ctx, pool, nil, outbox.StreamConfig{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting:", status.Waiting)
	fmt.Println("relay at work:", status.Relay != nil)
	// Output:
	// waiting: 2
	// relay at work: false
}

// A hook for metrics: it sets the functions that it needs.
func ExampleHook() {
	var losses atomic.Int64
	config := outbox.Config{Hooks: []outbox.Hook{{ // and DB and NATS
		MessagesLost: func(context.Context, string) { losses.Add(1) },
	}}}

	config.Hooks[0].MessagesLost(context.Background(), "it was recreated") // as the relay does

	fmt.Println("losses:", losses.Load())
	// Output: losses: 1
}
