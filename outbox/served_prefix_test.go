package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/served"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// Two ledgers with prefixes in one account serve subscribers of one name. The client of each receives the events of its
// ledger, below its prefix.
func TestServedSubscribersWithPrefixes(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	const tasks = 3
	for _, p := range []stream.Prefix{"shop", "shop-1"} {
		t.Run(string(p), func(t *testing.T) {
			s := newSubscribers(t)
			nc, err := outbox.Connect(server.URL(), outbox.NATSPrefix(string(p)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			for n := range tasks {
				ledgertest.Enqueue(t, s.pool, ledgertest.Key(t, fmt.Sprintf("coupon.send/%s-%d", p, n)), `{}`)
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- served.Run(ctx, served.Config{DB: s.db, NATS: nc, Name: "mails", PageSize: 20}) }()
			t.Cleanup(func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			var consumer jetstream.Consumer
			await(t, "the consumer exists", func() bool {
				consumer, err = js.Consumer(t.Context(), p.ServedStream("mails"), "mails")
				return err == nil
			})
			seen := make(map[string]bool)
			await(t, "all events have come", func() bool {
				m, err := consumer.Next(jetstream.FetchMaxWait(patience))
				if err != nil {
					t.Fatal(err)
				}
				task := m.Headers().Get("ce-subject")
				if seen[task] = true; !strings.HasPrefix(m.Subject(), string(p)+".subscriber.mails.") ||
					!strings.Contains(task, "/"+string(p)+"-") {
					t.Errorf("the event of %s on %s", task, m.Subject())
				}
				return m.Ack() == nil && len(seen) == tasks
			})
			if other, err := js.Stream(t.Context(), stream.None.ServedStream("mails")); err == nil {
				t.Errorf("there is a stream without a prefix: %+v", other.CachedInfo().State)
			}
		})
	}
}
