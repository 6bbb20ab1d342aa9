// Command from-river is a shop in the middle of its move from River: it works on both queues, in one process and one
// database. DATABASE_URL is the address of a login that may create tables, with the roles of services.Embed.
//
//	from-river A-1 A-2    places orders, and works until it is interrupted
package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

// couponArgs are the args of the kind that moves. River reads them from old jobs, the ledger from tasks.
type couponArgs struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

func (couponArgs) Kind() string { return "coupon.send" }

// receiptArgs are the args of a kind that is still River's.
type receiptArgs struct {
	Order string `json:"order"`
}

func (receiptArgs) Kind() string { return "receipt.send" }

var coupon = ledger.MustKind[couponArgs]("coupon.send")

// Two processes may start at once.
const tables = `
	select pg_advisory_xact_lock(hashtext('shop'));
	create table if not exists orders (id text primary key);
	create table if not exists receipts (order_id text not null);
	create table if not exists coupons (order_id text not null, cents int not null);`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := services.Embed(ctx, nil, func(ctx context.Context, client *taskledger.Client) error {
		return shop(ctx, client, os.Args[1:])
	})
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// shop places orders and works on both queues until ctx is done.
func shop(ctx context.Context, client *taskledger.Client, orders []string) error {
	queue, err := startRiver(ctx, client.DB)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Stop(context.WithoutCancel(ctx)) }()
	for _, order := range orders {
		if err := place(ctx, client.DB, queue, order); err != nil {
			return err
		}
	}
	worker, err := client.Worker(workers.Handle(coupon, sendCoupon, nil))
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// place commits an order, a job of River and a task of the ledger together.
func place(ctx context.Context, db *pgxpool.Pool, queue *river.Client[pgx.Tx], order string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders values ($1)`, order); err != nil {
			return err
		}
		if _, err := queue.InsertTx(ctx, tx, receiptArgs{Order: order}, nil); err != nil {
			return err
		}
		_, err := coupon.Enqueue(ctx, tx, ledger.BizID(order), couponArgs{Order: order, Cents: 500}, nil)
		return err
	})
}

// sendCoupon is the handler of the kind that has moved. There is nothing like JobCompleteTx to forget.
func sendCoupon(ctx context.Context, tx pgx.Tx, _ *workers.Job, args couponArgs) error {
	_, err := tx.Exec(ctx, `insert into coupons values ($1, $2)`, args.Order, args.Cents)
	return err
}

// startRiver creates River's tables and the shop's, and starts River's workers.
func startRiver(ctx context.Context, db *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(db)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := db.Exec(ctx, tables); err != nil {
		return nil, err
	}
	all := river.NewWorkers()
	river.AddWorker(all, &receiptWorker{db: db})
	river.AddWorker(all, &forwarder{db: db})
	queue, err := river.NewClient(driver, &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
		Workers: all,
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return queue, queue.Start(context.WithoutCancel(ctx)) // shop stops it
}

// receiptWorker works as before.
type receiptWorker struct {
	river.WorkerDefaults[receiptArgs]
	db *pgxpool.Pool
}

func (w *receiptWorker) Work(ctx context.Context, job *river.Job[receiptArgs]) error {
	return pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into receipts values ($1)`, job.Args.Order); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// forwarder replaces the worker of the kind that moves. Each job that exists, or that an old producer still inserts,
// becomes a task in the transaction that completes the job. Two jobs of one order become one task.
type forwarder struct {
	river.WorkerDefaults[couponArgs]
	db *pgxpool.Pool
}

func (w *forwarder) Work(ctx context.Context, job *river.Job[couponArgs]) error {
	return pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
		if _, err := coupon.Enqueue(ctx, tx, ledger.BizID(job.Args.Order), job.Args, nil); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}
