// Command tenants places orders of several tenants, each in a PostgreSQL of its own, and works on the tasks of all.
// Each database is a ledger with its own services. TENANTS contains their addresses, as
// acme=postgres://…,nats://…,acme globex=postgres://…: the third part is the prefix of a ledger that shares an account
// of NATS with others. Without an address of NATS, the ledger's services run the server.
//
//	tenants work                  works for all tenants until it is interrupted
//	tenants place acme A-1 A-2    places orders of a tenant
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var mail = ledger.MustKind[string]("order.mail")

// tenants are the clients by the names of the tenants.
type tenants map[string]*taskledger.Client

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	all, err := open(ctx, os.Getenv("TENANTS"))
	defer all.close()
	switch {
	case err != nil:
		return err
	case len(args) == 1 && args[0] == "work":
		return all.work(ctx)
	case len(args) > 2 && args[0] == "place":
		return all.place(ctx, args[1], args[2:])
	}
	return errors.New("usage: tenants work | tenants place TENANT ORDER...")
}

// open connects to all ledgers. Even with an error, it returns the opened ones.
func open(ctx context.Context, addresses string) (tenants, error) {
	all := make(tenants)
	for word := range strings.FieldsSeq(addresses) {
		name, places, _ := strings.Cut(word, "=")
		database, places, _ := strings.Cut(places, ",")
		nats, prefix, _ := strings.Cut(places, ",")
		client, err := taskledger.Open(ctx,
			taskledger.Options{DatabaseURL: database, NATSURL: nats, NATSPrefix: prefix})
		if err != nil {
			return all, fmt.Errorf("tenant %s: %w", name, err)
		}
		all[name] = client
	}
	return all, nil
}

func (all tenants) close() {
	for _, client := range all {
		client.Close()
	}
}

// place places orders in the tenant's database. An order and its task commit together.
func (all tenants) place(ctx context.Context, tenant string, orders []string) error {
	client, exists := all[tenant]
	if !exists {
		return fmt.Errorf("there is no tenant %s", tenant)
	}
	return pgx.BeginFunc(ctx, client.DB, func(tx pgx.Tx) error {
		for _, order := range orders {
			if _, err := mail.Enqueue(ctx, tx, ledger.BizID(order), tenant, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// work works for each tenant in a pool of its own, so that no tenant takes the slots of another.
func (all tenants) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(all))
	for tenant, client := range all {
		send := func(_ context.Context, _ pgx.Tx, job *workers.Job, of string) error {
			log.Printf("mail of %s about order %s of %s", tenant, job.BizID, of)
			return nil
		}
		worker, err := client.Worker(workers.Handle(mail, send, &workers.KindConfig{Slots: 4}))
		if err != nil {
			return err
		}
		go func() { ended <- worker.Run(ctx) }()
	}
	var err error
	for range all {
		err = errors.Join(err, <-ended)
		stop()
	}
	return err
}
