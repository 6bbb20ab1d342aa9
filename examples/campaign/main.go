// Command campaign sends each customer one coupon every Monday at nine, at most 600 a minute over all workers, after
// all other mail. DATABASE_URL is the address of a login with the roles producer, worker, operator and subscriber
// that may create tables.
//
//	campaign work            sets the schedule and the limit, and works until it is interrupted
//	campaign join ada bob    adds customers
//	campaign now             begins an extra campaign, and waits until its coupons are enqueued
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/workers"
)

var (
	campaign = ledger.MustKind[struct{}]("campaign.start")
	coupon   = ledger.MustKind[string]("campaign.coupon").WithPriority(ledger.PriorityLow) // its args: a customer
)

// Two workers may start at once.
const tables = `
	select pg_advisory_xact_lock(hashtext('campaign'));
	create table if not exists customers (name text primary key);
	create table if not exists campaign_coupons (id text primary key, customer text not null);`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	client, err := taskledger.Open(ctx, taskledger.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	switch {
	case len(args) == 1 && args[0] == "work":
		return work(ctx, client)
	case len(args) > 1 && args[0] == "join":
		return join(ctx, client, args[1:])
	case len(args) == 1 && args[0] == "now":
		return now(ctx, client)
	}
	return errors.New("usage: campaign work | campaign join CUSTOMER... | campaign now")
}

func join(ctx context.Context, client *taskledger.Client, customers []string) error {
	if _, err := client.DB.Exec(ctx, tables); err != nil {
		return err
	}
	_, err := client.DB.Exec(ctx, `insert into customers select unnest($1::text[]) on conflict do nothing`, customers)
	return err
}

func now(ctx context.Context, client *taskledger.Client) error {
	task, err := periodic.RunNow(ctx, client.DB, "weekly-coupons", "campaign", "an extra campaign")
	if err == nil {
		_, err = client.Wait(ctx, task.Key)
	}
	return err
}

func work(ctx context.Context, client *taskledger.Client) error {
	if _, err := client.DB.Exec(ctx, tables); err != nil {
		return err
	}
	weekly := periodic.Schedule{
		Name: "weekly-coupons", Kind: campaign.Name(), Cron: "0 9 * * MON", Zone: "Europe/Berlin",
	}
	if _, err := periodic.Apply(ctx, client.DB, []periodic.Schedule{weekly}, nil); err != nil {
		return err
	}
	limit := ledger.StartLimit{
		Name: string(coupon.Name()), Kinds: map[ledger.Kind]int{coupon.Name(): 1},
		Rate: &ledger.StartRate{Starts: 600, Period: time.Minute, Burst: 100},
	}
	if err := ledger.SetStartLimit(ctx, client.DB, limit, "campaign"); err != nil {
		return err
	}
	worker, err := client.Worker(workers.Handle(campaign, start, nil), workers.Handle(coupon, send, nil))
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// start enqueues a task for each customer, in the transaction that ends the campaign's task. Its key names the firing,
// so no customer gets two coupons in a week.
func start(ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{}) error {
	rows, err := tx.Query(ctx, `select name from customers`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	entries := make([]ledger.Entry, len(names))
	for i, name := range names {
		if entries[i], err = coupon.Entry(job.BizID+ledger.BizID("/"+name), name, nil); err != nil {
			return err
		}
	}
	_, err = ledger.EnqueueMany(ctx, tx, entries)
	return err
}

func send(ctx context.Context, tx pgx.Tx, job *workers.Job, customer string) error {
	_, err := tx.Exec(ctx, `insert into campaign_coupons values ($1, $2)`, string(job.BizID), customer)
	return err
}
