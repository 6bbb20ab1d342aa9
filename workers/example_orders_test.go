package workers_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

type Coupon struct {
	Cents int `json:"cents"`
}

var SendCoupon = ledger.MustKind[Coupon]("coupon.send")

func placeOrder(ctx context.Context, db *pgxpool.Pool, order string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id) values ($1)`, order); err != nil {
			return err
		}
		// The task exists if and only if this transaction commits.
		_, err := SendCoupon.Enqueue(ctx, tx, ledger.BizID(order), Coupon{Cents: 500}, nil)
		return err
	})
}

// The coupon and the task's "succeeded" event commit together, or not at all.
func sendCoupon(ctx context.Context, tx pgx.Tx, job *workers.Job, c Coupon) error {
	_, err := tx.Exec(ctx, `insert into coupons (order_id, cents) values ($1, $2)`, string(job.BizID), c.Cents)
	return err
}

func work(ctx context.Context) error {
	client, err := taskledger.Open(ctx, taskledger.Options{}) // reads DATABASE_URL
	if err != nil {
		return err
	}
	defer client.Close()
	worker, err := client.Worker(workers.Handle(SendCoupon, sendCoupon, nil))
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// A producer and a worker, with the dispatcher that `taskledger serve` runs.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	db, done := ledgertest.Example(ledgertest.App, "relay")
	defer done()
	must := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "taskledger-example-")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := natsserver.Start(natsserver.Config{Dir: dir})
	must(err)
	defer func() { _ = server.Close() }()
	nc, err := outbox.Connect(server.URL())
	must(err)
	defer nc.Close()
	_, err = db.Exec(ctx, `create table orders (id text primary key)`)
	must(err)
	_, err = db.Exec(ctx, `create table coupons (order_id text, cents integer)`)
	must(err)

	must(os.Setenv("DATABASE_URL", db.Config().ConnString()))
	must(os.Setenv("NATS_URL", server.URL()))
	gives, err := dispatcher.New(dispatcher.Config{DB: db, NATS: nc})
	must(err)
	ended := make(chan error, 2)
	go func() { ended <- gives.Run(ctx) }()
	go func() { ended <- work(ctx) }()
	must(placeOrder(ctx, db, "A-1"))

	for {
		task, err := ledger.Load(ctx, db, ledger.Key{Kind: "coupon.send", BizID: "A-1"})
		must(err)
		if task.State == ledger.StateSucceeded {
			break
		}
		time.Sleep(time.Millisecond)
	}
	var cents int
	must(db.QueryRow(ctx, `select cents from coupons where order_id = 'A-1'`).Scan(&cents))
	fmt.Println(cents, "cents")
	cancel()
	must(<-ended)
	must(<-ended)
	// Output: 500 cents
}
