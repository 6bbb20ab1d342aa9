// Command orders enqueues a task in the transaction of an order, and works on such tasks: each order gets exactly one
// coupon. DATABASE_URL is the address of the database, for a login with the roles producer and worker that may create
// tables. taskledger serve must be running.
//
//	orders work            works until it is interrupted
//	orders place A-1 A-2   places orders
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// coupon is the args of the tasks.
type coupon struct {
	Cents int `json:"cents"`
}

var couponKind = ledger.MustKind[coupon]("coupon.send")

// Two processes may start at once.
const tables = `
	select pg_advisory_xact_lock(hashtext('shop'));
	create table if not exists orders (id text primary key);
	create table if not exists coupons (order_id text not null, cents integer not null)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "work":
		return work(ctx)
	case len(args) > 1 && args[0] == "place":
		return place(ctx, args[1:])
	}
	return errors.New("usage: orders work | orders place ORDER...")
}

// place places orders, each in a transaction of its own. An order that exists stays as it is.
func place(ctx context.Context, orders []string) error {
	client, err := taskledger.Open(ctx, taskledger.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.DB.Exec(ctx, tables); err != nil {
		return err
	}
	for _, order := range orders {
		if err := placeOrder(ctx, client.DB, order); err != nil {
			return err
		}
	}
	return nil
}

func placeOrder(ctx context.Context, db *pgxpool.Pool, order string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id) values ($1) on conflict do nothing`, order); err != nil {
			return err
		}
		// The task exists if and only if this transaction commits. A second enqueue returns the first task.
		task, err := couponKind.Enqueue(ctx, tx, ledger.BizID(order), coupon{Cents: 500}, nil)
		if err == nil {
			log.Printf("order %s: the task is new: %t", order, task.New)
		}
		return err
	})
}

// work works until ctx is done. Handlers that run are finished first.
func work(ctx context.Context) error {
	client, err := taskledger.Open(ctx, taskledger.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.DB.Exec(ctx, tables); err != nil {
		return err
	}
	worker, err := client.Worker(workers.Handle(couponKind, sendCoupon, &workers.KindConfig{Slots: 4}))
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// sendCoupon is the handler. The coupon and the end of the task commit together, or not at all.
func sendCoupon(ctx context.Context, tx pgx.Tx, job *workers.Job, c coupon) error {
	_, err := tx.Exec(ctx, `insert into coupons (order_id, cents) values ($1, $2)`, string(job.BizID), c.Cents)
	return err
}
