package systemtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/served"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// With the rights of docs/nats.conf a subscriber is served to its program, which can neither publish to its stream, nor
// change it, nor reach the ledger's.
func TestServedSubscriberHasItsRights(t *testing.T) {
	g := newGuarded(t)
	const n = 30
	for i := range n {
		ledgertest.Enqueue(t, g.db, ledger.Key{Kind: "order.ship", BizID: ledger.BizID(fmt.Sprint(i))}, `{"n":1}`)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- served.Run(ctx, served.Config{DB: g.pool("subscriber"), NATS: g.connect("orders-server"),
			Name: "orders", PageSize: 20})
	}()
	program := g.connect("orders")
	js, err := jetstream.New(program)
	if err != nil {
		t.Fatal(err)
	}
	g.awaitStream()
	consumer, err := js.Consumer(t.Context(), stream.None.ServedStream("orders"), "orders")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for received := 0; received < n; {
		if time.Now().After(deadline) {
			t.Fatalf("received %d events, want %d", received, n)
		}
		batch, err := consumer.Fetch(n, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			received++
			if m.Headers().Get("ce-type") != "taskledger.enqueued" || string(m.Data()) != `{"n":1}` {
				t.Errorf("%s: %v %s", m.Subject(), m.Headers(), m.Data())
			}
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	g.mu.Lock()
	if len(g.refused) > 0 {
		t.Errorf("NATS refused: %s", strings.Join(g.refused, "; "))
	}
	g.mu.Unlock()
	for _, subject := range []string{"subscriber.orders.0.succeeded.a", "ledger.0.succeeded.a",
		"$JS.API.STREAM.DELETE.SUBSCRIBER_orders", "$JS.API.STREAM.PURGE.SUBSCRIBER_orders",
		"$JS.API.CONSUMER.CREATE.SUBSCRIBER_orders.other", "$JS.API.STREAM.CREATE.LEDGER"} {
		if err := program.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if err := program.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := program.LastError(); err == nil || !strings.Contains(err.Error(), subject) {
			t.Errorf("the program may publish on %s: %v", subject, err)
		}
	}
	if _, err := program.Request("$JS.API.STREAM.INFO.LEDGER", nil, 100*time.Millisecond); err == nil {
		t.Error("the program reads the ledger's stream")
	}
}

// awaitStream waits until the subscriber orders is served.
func (g *guarded) awaitStream() {
	g.t.Helper()
	js, err := jetstream.New(g.connect("orders"))
	if err != nil {
		g.t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		_, err := js.Consumer(g.t.Context(), stream.None.ServedStream("orders"), "orders")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the subscriber is not served: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The user that serves a subscriber cannot take the disk or the memory of NATS from the ledger's stream.
func TestServedAccountIsLimited(t *testing.T) {
	g := newGuarded(t)
	js := g.jetStream("orders-server")
	name, subjects := stream.None.ServedStream("orders"), []string{"subscriber.orders.>"}
	for what, config := range map[string]jetstream.StreamConfig{
		"without a limit": {},
		"larger":          {MaxBytes: 64<<20 + 1},
		"in memory":       {MaxBytes: 1 << 20, Storage: jetstream.MemoryStorage},
	} {
		config.Name, config.Subjects = name, subjects
		if _, err := js.CreateStream(t.Context(), config); err == nil {
			t.Errorf("a stream %s was made", what)
		}
	}
}
