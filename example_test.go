package taskledger_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// greet is the kind of the examples.
var greet = ledger.MustKind[string]("greet")

// A program that enqueues a task and works on it. DATABASE_URL has the address of the database.
func ExampleClient_Worker() {
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	client, err := taskledger.Open(ctx, taskledger.Options{})
	check(err)
	defer client.Close()
	_, err = greet.Enqueue(ctx, client.DB, "order-17", "world", nil)
	check(err)
	worker, err := client.Worker(
		workers.Handle(greet, func(_ context.Context, _ pgx.Tx, job *workers.Job, name string) error {
			return job.Result("hello " + name)
		}, nil),
	)
	check(err)
	check(worker.Run(ctx))
}

// A program that waits for the result of a task, in whatever process it runs.
func ExampleClient_Wait() {
	ctx := context.Background()
	client, err := taskledger.Open(ctx, taskledger.Options{})
	check(err)
	defer client.Close()
	task, err := client.Wait(ctx, greet.Key("order-17"))
	check(err)
	text, err := ledger.ResultOf[string](task)
	check(err)
	fmt.Println(text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
