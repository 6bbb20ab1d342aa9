package services_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// Two ledgers share an account of NATS by mistake. With the stream, the relay of the second refuses, and its log names
// the cure. Without it nothing is mixed either: each task runs in its own ledger, although both workers have its kind.
func TestTwoLedgersOfOneAccount(t *testing.T) {
	t.Parallel()
	for _, isOff := range []bool{false, true} {
		t.Run(fmt.Sprintf("off=%t", isOff), func(t *testing.T) {
			t.Parallel()
			url := startNATS(t).URL()
			var both [2]*embedding
			var greeted [2]chan string
			for i := range both {
				db := ledgertest.Pool(t, ledgertest.Owner)
				work, names := greeter()
				greeted[i] = names
				both[i] = embed(t, services.EmbedOptions{
					Client:   taskledger.Options{DatabaseURL: db.Config().ConnString(), NATSURL: url},
					Services: services.Config{StreamOff: isOff},
				}, func(ctx context.Context, client *taskledger.Client) error {
					for n := range 20 {
						id, name := ledger.BizID(fmt.Sprint("order-", n)), fmt.Sprint("ledger ", i)
						if _, err := greet.Enqueue(ctx, client.DB, id, name, nil); err != nil {
							return err
						}
					}
					return work(ctx, client)
				})
			}
			for i, names := range greeted {
				for range 20 {
					select {
					case name := <-names:
						if name != fmt.Sprint("ledger ", i) {
							t.Fatalf("the worker of ledger %d has a task of %s", i, name)
						}
					case <-time.After(patience):
						t.Fatalf("a task of ledger %d was not worked on\n%s\n%s", i, &both[0].log, &both[1].log)
					}
				}
			}
			const cure = "another NATS account"
			for !isOff && !strings.Contains(both[0].log.String()+both[1].log.String(), cure) {
				time.Sleep(10 * time.Millisecond) // until the test's deadline
			}
			both[0].end(t)
			both[1].end(t)
		})
	}
}
