package webhooks_test

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// An asynchronous standby is promoted that lacks events which a receiver has got, and their positions are given to
// other events. Each of those has a webhook-id of its own, so that a receiver that drops doubles misses none.
func TestPositionsAreGivenAgain(t *testing.T) {
	t.Parallel()
	pair := servicetest.NewPair(t)
	b := servicetest.NewServedOn(t, pair.DB, outbox.StreamConfig{})
	h := &hooks{Bundle: b, db: ledgertest.As(t, b.DB, ledgertest.App, "subscriber"), log: &logText{}}
	r := newReceiver(t)
	h.start(webhooks.Receiver{Name: "shop", Endpoint: endpoint(r.server.URL), Kinds: []ledger.Kind{"coupon.send"}})
	const tasks = 50
	sent := 0
	send := func(prefix string) {
		t.Helper()
		sent += tasks
		for i := range tasks {
			key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(prefix, i))}
			ledgertest.Enqueue(t, b.DB, key, `{}`)
		}
		// A fail-over may deliver earlier events a second time, with their ids.
		h.Await(prefix+" is delivered", func() bool { return r.webhookIDs() >= sent })
	}
	send("before")
	pair.Separate()
	last := servicetest.One[int64](h, `select max(position) from taskledger.event`)
	send("lost")
	lost := servicetest.One[int64](h, `select max(position) from taskledger.event`)
	pair.FailOver()
	send("after")
	if n := servicetest.One[int](h, `select count(*)::integer from taskledger.event
		where kind = 'coupon.send' and position > $1 and position <= $2`, last, lost); n == 0 {
		t.Fatal("no position was given again")
	}
	if got := r.webhookIDs(); got != sent {
		t.Errorf("%d webhook-ids of %d events", got, sent)
	}
}
