package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A subscriber writes each new task once into a table: its place is kept in the same transaction. It begins at the
// first event of the ledger.
func ExampleSubscribe() {
	ctx, stop := context.WithCancel(context.Background())
	pool, done := ledgertest.Example(ledgertest.App, "subscriber")
	defer done()
	if _, err := pool.Exec(ctx, "create table mail (order_no text)"); err != nil {
		log.Fatal(err)
	}
	sendCoupon := ledger.MustKind[int]("coupon.send")
	for _, order := range []ledger.BizID{"A-1", "A-2"} {
		if _, err := sendCoupon.Enqueue(ctx, pool, order, 500, nil); err != nil {
			log.Fatal(err)
		}
	}

	err := outbox.Subscribe(ctx, outbox.Subscription{
		DB: pool, Name: "mails", Kinds: []ledger.Kind{"coupon.send"}, Types: []ledger.EventType{ledger.EventEnqueued},
		Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
			for _, e := range events {
				fmt.Println(e.Key, e.Type, string(e.Data))
				if _, err := tx.Exec(ctx, "insert into mail (order_no) values ($1)", string(e.BizID)); err != nil {
					return err // the same events come again
				}
				if e.BizID == "A-2" {
					defer stop() // a program would run on
				}
			}
			return nil
		},
	})
	fmt.Println(err)
	// Output:
	// coupon.send/A-1 enqueued 500
	// coupon.send/A-2 enqueued 500
	// <nil>
}

// A process that receives the events that are committed from now on, at least once each, for an effect elsewhere.
func ExampleSubscribe_receive() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	err = outbox.Subscribe(ctx, outbox.Subscription{
		DB: pool, Name: "dashboard", From: outbox.StartNow(),
		Receive: func(ctx context.Context, events []ledger.Event) error {
			fmt.Println(len(events), "events up to position", events[len(events)-1].Position)
			return ctx.Err()
		},
	})
	if err != nil {
		log.Fatal(err) // the error names the cure
	}
}

// A program waits for the result of a task, in whatever process that runs. With a connection to NATS in the
// configuration the wait ends some milliseconds after the task; without one, at the next poll.
func ExampleWaiter() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, done := ledgertest.Example(ledgertest.App, "subscriber")
	defer done()
	waiter, err := outbox.NewWaiter(outbox.WaiterConfig{DB: pool, PollEvery: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer waiter.Close()

	makeReport := ledger.MustKind[string]("report.make")
	if _, err := makeReport.Enqueue(ctx, pool, "2026-11", "sales", nil); err != nil {
		log.Fatal(err)
	}
	go work(ctx, pool, makeReport.Key("2026-11"), `{"result": {"pages": 7}}`)

	task, err := makeReport.Wait(ctx, waiter, "2026-11")
	if err != nil {
		log.Fatal(err) // a *ledger.TaskError if it has not succeeded, a *ledger.WaitTimeoutError if the time is up
	}
	report, err := ledger.ResultOf[struct{ Pages int }](task)
	fmt.Println(task.State, report.Pages, err)
	// Output: succeeded 7 <nil>
}

// A wait for several tasks ends when all have succeeded, or one has not.
func ExampleWaiter_WaitFor() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, done := ledgertest.Example(ledgertest.App, "subscriber")
	defer done()
	waiter, err := outbox.NewWaiter(outbox.WaiterConfig{DB: pool, PollEvery: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer waiter.Close()

	keys := []ledger.Key{{Kind: "report.make", BizID: "sales"}, {Kind: "report.make", BizID: "stock"}}
	for _, k := range keys {
		if _, err := ledger.Enqueue(ctx, pool, k, nil, nil); err != nil {
			log.Fatal(err)
		}
	}
	bury := ledger.AppendRequest{Key: keys[1], Expected: 1, Type: ledger.EventBuried,
		Data: json.RawMessage(`{"error": {"message": "no paper"}}`)}
	if _, err := ledger.Append(ctx, pool, bury); err != nil {
		log.Fatal(err)
	}

	tasks, err := ledger.WaitMany(ctx, waiter, keys, ledger.UntilError)
	var failure *ledger.TaskError
	fmt.Println(errors.As(err, &failure), err)
	fmt.Println(tasks[1].State)
	// Output:
	// true report.make/stock is dead: no paper
	// dead
}

// work is the worker of the example: it lets a task succeed.
func work(ctx context.Context, db ledger.DB, k ledger.Key, data string) {
	request := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventSucceeded, Data: json.RawMessage(data)}
	if _, err := ledger.Append(ctx, db, request); err != nil {
		log.Print(err)
	}
}
