// Command tables counts coupons by campaign and day, from the args of their tasks and the results of their handlers.
// DATABASE_URL is the address of a login with the roles subscriber and relay that may create schemas.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

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
			default: // they do not count
			}
		}
		return tx.SendBatch(ctx, &statements).Close()
	},
}

func main() {
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	couponsPerDay.DB = pool
	if err := outbox.Subscribe(ctx, couponsPerDay); err != nil {
		log.Fatal(err)
	}
}
