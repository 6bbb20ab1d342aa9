package taskledger_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// greet is the kind of the example.
var greet = ledger.MustKind[string]("greet")

// A program that enqueues a task and works on it. DATABASE_URL and NATS_URL have the addresses.
func ExampleOpen() {
	ctx := context.Background()
	client, err := taskledger.Open(ctx, taskledger.Options{Slots: 10})
	check(err)
	defer client.Close()
	_, err = greet.Enqueue(ctx, client.DB, "order-17", "world", nil)
	check(err)
	pool, err := workers.New(workers.Config{DB: client.DB, NATS: client.NATS})
	check(err)
	check(pool.Register(workers.Handle(greet, func(_ context.Context, _ pgx.Tx, _ *workers.Job, name string) error {
		log.Println("hello", name)
		return nil
	}, nil)))
	check(pool.Run(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
