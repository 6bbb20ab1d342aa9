package outbox_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// ordersPerKind counts orders in a table of its own.
var ordersPerKind = outbox.Subscription{
	Name:   "orders", // and the schema of its tables
	Types:  []ledger.EventType{ledger.EventEnqueued},
	Tables: outbox.Tables{Version: 1, DDL: `create table per_kind (kind text primary key, orders int not null)`},
	Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		for _, e := range events {
			_, err := tx.Exec(ctx, `insert into per_kind values ($1, 1)
				on conflict (kind) do update set orders = per_kind.orders + 1`, string(e.Kind))
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// A program reads what it has just written from a subscriber's tables.
func ExampleWaitFor() {
	t, done := ledgertest.ExampleTB()
	defer done()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "subscriber")
	ledgertest.AllowSchemas(t, pool) // grant create on database … to …

	ctx, cancel := context.WithCancel(context.Background())
	running := make(chan error)
	go func() {
		s := ordersPerKind
		s.DB = pool
		running <- outbox.Subscribe(ctx, s)
	}()
	for { // a new subscriber is registered when its program begins
		if _, err := subscribers.Read(ctx, pool, "orders"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}

	var last ledger.Position
	for _, order := range []ledger.BizID{"A-17", "A-18"} {
		task, err := ledger.Enqueue(ctx, pool, ledger.Key{Kind: "coupon.send", BizID: order}, nil, nil)
		if err != nil {
			log.Fatal(err)
		}
		last = task.Position
	}
	if err := outbox.WaitFor(ctx, pool, "orders", last); err != nil {
		log.Fatal(err)
	}
	var kind string
	var orders int
	if err := pool.QueryRow(ctx, `select kind, orders from orders.per_kind`).Scan(&kind, &orders); err != nil {
		log.Fatal(err)
	}
	fmt.Println(kind, orders)
	cancel()
	fmt.Println(<-running)
	// Output:
	// coupon.send 2
	// <nil>
}
