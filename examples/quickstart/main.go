// Command quickstart is a whole ledger in one process: services, a producer and a worker. Without DATABASE_URL it also
// starts PostgreSQL. A second process with TASKLEDGER_ROLE=program adds a worker.
package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

var coupon = ledger.MustKind[int]("coupon.send") // a kind of task, and the type of its args

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := services.Embed(ctx, &services.EmbedOptions{OwnDatabase: true}, shop); err != nil {
		log.Fatal(err)
	}
}

func shop(ctx context.Context, client *taskledger.Client) error {
	db := client.DB
	_, err := db.Exec(ctx, `select pg_advisory_xact_lock(hashtext('shop')); -- two processes may start at once
		create table if not exists coupons (order_id text, cents int)`)
	if err != nil {
		return err
	}
	// With a transaction of yours instead of db, the task exists if and only if it commits.
	if _, err = coupon.Enqueue(ctx, db, "order-1", 500, nil); err != nil {
		return err
	}
	worker, err := client.Worker(workers.Handle(coupon, send, nil))
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

func send(ctx context.Context, tx pgx.Tx, job *workers.Job, cents int) error {
	log.Printf("%s gets a coupon of %d cents", job.BizID, cents)
	// The coupon and the end of the task commit together, or not at all.
	_, err := tx.Exec(ctx, `insert into coupons values ($1, $2)`, string(job.BizID), cents)
	return err
}
