package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// couponsPerDay counts the coupons that were sent by campaign and day, and adds their amounts. The campaign is in the
// args of the task, and the amount in the result of its handler.
var couponsPerDay = outbox.Subscription{
	Name: "coupons", // and the schema of its tables
	Tables: outbox.Tables{Version: 1, DDL: `
		create table per_day (
		  campaign text not null,
		  day      date not null,
		  sent     bigint not null,
		  cents    bigint not null,
		  primary key (campaign, day));
		create table waiting (
		  biz_id   text primary key,
		  campaign text not null)`},
	Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		var statements pgx.Batch
		for _, e := range events {
			if e.Kind != "coupon.send" {
				continue
			}
			switch e.Type {
			case ledger.EventEnqueued:
				var args struct{ Campaign string }
				if err := json.Unmarshal(e.Data, &args); err != nil {
					return err
				}
				statements.Queue(`insert into waiting values ($1, $2)`, string(e.BizID), args.Campaign)
			case ledger.EventSucceeded:
				var data struct{ Result struct{ Cents int64 } }
				if err := json.Unmarshal(e.Data, &data); err != nil {
					return err
				}
				statements.Queue(`
					with sent as (delete from waiting where biz_id = $1 returning campaign)
					insert into per_day
					select campaign, $2::text::date, 1, $3 from sent
					    on conflict (campaign, day)
					    do update set sent = per_day.sent + 1, cents = per_day.cents + excluded.cents`,
					string(e.BizID), e.RecordedAt.UTC().Format(time.DateOnly), data.Result.Cents)
			default: // other events change nothing here
			}
		}
		return tx.SendBatch(ctx, &statements).Close()
	},
}

// Coupons per campaign and day, with an amount from the handler's result. The program reads what it has just written.
func Example_couponsPerDay() {
	t, done := ledgertest.ExampleTB()
	defer done()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "subscriber")
	ledgertest.AllowSchemas(t, pool) // grant create on database … to …

	ctx, cancel := context.WithCancel(context.Background())
	running := make(chan error)
	go func() {
		s := couponsPerDay
		s.DB = pool
		running <- outbox.Subscribe(ctx, s)
	}()

	var last ledger.Position
	for i, cents := range []int{500, 250} {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", i))}
		if _, err := ledger.Enqueue(ctx, pool, key, []byte(`{"campaign":"spring"}`), nil); err != nil {
			log.Fatal(err)
		}
		event, err := ledger.Append(ctx, pool, ledger.AppendRequest{ // a worker appends it with the handler's result
			Key: key, Expected: 1, Type: ledger.EventSucceeded,
			Data: fmt.Appendf(nil, `{"result":{"cents":%d}}`, cents),
		})
		if err != nil {
			log.Fatal(err)
		}
		last = event.Position
	}
	for { // a new subscriber is registered when its program begins
		if _, err := subscribers.Read(ctx, pool, "coupons"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := outbox.WaitFor(ctx, pool, "coupons", last); err != nil {
		log.Fatal(err)
	}
	var campaign string
	var sent, cents int
	err := pool.QueryRow(ctx, `select campaign, sent, cents from coupons.per_day`).Scan(&campaign, &sent, &cents)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(campaign, sent, "coupons,", cents, "cents")
	cancel()
	fmt.Println(<-running)
	// Output:
	// spring 2 coupons, 750 cents
	// <nil>
}
