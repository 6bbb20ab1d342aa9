package outbox_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

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
