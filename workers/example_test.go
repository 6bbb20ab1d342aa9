package workers_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

type coupon struct {
	Percent int `json:"percent"`
}

var couponSend = ledger.MustKind[coupon]("coupon.send")

// A worker process: the coupon and the task's success are one commit.
func ExampleHandle() {
	ctx, stop := workers.SignalContext(context.Background()) // the first SIGTERM drains, the second one kills
	defer stop()
	db, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	nc, err := nats.Connect("nats://localhost", nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		log.Fatal(err)
	}
	p, err := workers.New(workers.Config{DB: db, NATS: nc})
	if err != nil {
		log.Fatal(err)
	}
	err = p.Register(workers.Handle(couponSend, func(ctx context.Context, tx pgx.Tx, job *workers.Job, c coupon) error {
		_, err := tx.Exec(ctx, "insert into coupon (order_no, percent) values ($1, $2)", string(job.BizID), c.Percent)
		return err
	}, nil))
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A handler whose effect is elsewhere passes the key of the task, so that the other system can recognize a repetition.
func ExampleHandle_atLeastOnce() {
	send := func(ctx context.Context, idempotencyKey string, percent int) (id string, err error) {
		return fmt.Sprintf("mail about %d %% off", percent), ctx.Err()
	}
	var p *workers.Pool // from workers.New
	err := p.Register(workers.Handle(couponSend, func(
		ctx context.Context, job *workers.Job, c coupon,
	) error {
		id, err := send(ctx, job.Key.String(), c.Percent)
		if err != nil {
			return err // tried again, up to 25 times
		}
		return job.Result(map[string]string{"mail": id}) // part of the succeeded event
	}, &workers.KindConfig{Slots: 100}))
	if err != nil {
		log.Fatal(err)
	}
}
