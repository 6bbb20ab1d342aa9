// Command subscriber writes a mail into a table for each coupon that was sent, exactly once each: its place in the
// ledger is kept in the same transaction. DATABASE_URL is the address of the database, of a login with the role
// subscriber that may create tables. It begins with the first event of the ledger and runs until it is interrupted.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Two processes may start at once.
const table = `
	select pg_advisory_xact_lock(hashtext('mails'));
	create table if not exists mails (order_id text not null)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := taskledger.Open(ctx, taskledger.Options{Name: "subscriber"})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.DB.Exec(ctx, table); err != nil {
		return err
	}
	return outbox.Subscribe(ctx, outbox.Subscription{
		DB: client.DB, Name: "mails",
		Kinds: []ledger.Kind{"coupon.send"}, Types: []ledger.EventType{ledger.EventSucceeded},
		Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
			for _, e := range events {
				if _, err := tx.Exec(ctx, `insert into mails (order_id) values ($1)`, string(e.BizID)); err != nil {
					return err // the same events come again
				}
			}
			return nil
		},
	})
}
