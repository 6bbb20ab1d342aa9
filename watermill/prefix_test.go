package watermill_test

import (
	"context"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/watermill"
)

// Two ledgers with prefixes in one account have groups of one name. Each receives the events of its ledger.
func TestEventSubscribersWithPrefixes(t *testing.T) {
	t.Parallel()
	b := newEventBundle(t)
	for _, p := range []stream.Prefix{"shop", "shop-1"} {
		db := ledgertest.Pool(t)
		nc, err := outbox.Connect(b.Server.URL(), outbox.NATSPrefix(string(p)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		relay, err := outbox.New(outbox.Config{DB: ledgertest.As(t, db, "relay"), NATS: nc,
			Stream: outbox.StreamConfig{MaxBytes: 1 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- relay.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		b.Await("the stream exists", func() bool {
			_, err := b.JS.Stream(t.Context(), p.Stream())
			return err == nil
		})
		messages := b.Subscribe(b.subscriber(func(c *watermill.EventSubscriberConfig) { c.NATS = nc }), "coupon.>")
		for _, id := range []string{"-1", "-2"} {
			ledgertest.Enqueue(t, db, ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(string(p) + id)}, `{}`)
		}
		for range 2 {
			m := b.Receive(messages)
			if e, _ := watermill.EventOf(m.Context()); !strings.HasPrefix(string(e.Key.BizID), string(p)+"-") {
				t.Errorf("%s receives the event of %s", p, e.Key)
			}
			m.Ack()
		}
	}
	if _, err := b.JS.Stream(t.Context(), stream.Name); err == nil {
		t.Error("there is a stream without a prefix")
	}
}
