package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A user of NATS without the right to delete the stream cannot rebuild it. The error has the right, and the act is on
// record as failed.
func TestRebuildWithoutTheRight(t *testing.T) {
	t.Parallel()
	b := &bundle{t: t, pool: ledgertest.Pool(t, ledgertest.App, "relay", "operator")}
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Accounts: `
		accounts { LEDGER { jetstream: enabled, users: [
			{user: all, password: pw},
			{user: few, password: pw, permissions: {publish: {deny: ["$JS.API.STREAM.DELETE.LEDGER"]}}}]}}`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	connect := func(user string) (*nats.Conn, jetstream.JetStream) {
		nc, err := outbox.Connect("nats://" + user + ":pw@" + server.Host())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience/10))
		if err != nil {
			t.Fatal(err)
		}
		return nc, js
	}
	b.nc, b.js = connect("all")
	b.relay()
	b.enqueue("coupon.send", "order-", 1)
	b.awaitPublished()
	// The process of this one was killed before it deleted the stream.
	created := b.stream().CachedInfo().Created
	_, few := connect("few")
	operator := ledgertest.As(t, b.pool, "operator")
	err = relays.RebuildStream(b.ctx(), operator, few, &relays.RebuildOptions{Actor: "alice"})
	if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "STREAM.DELETE.LEDGER") {
		t.Errorf("error %v, want the missing right", err)
	}
	if !b.stream().CachedInfo().Created.Equal(created) {
		t.Error("the stream was deleted")
	}
	var last ledger.Event
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, 100) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "taskledger.operation" {
			last = e
		}
	}
	hasRight := strings.Contains(string(last.Data), "STREAM.DELETE")
	if last.Type != ledger.EventBuried || last.Actor != "alice" || !hasRight {
		t.Errorf("on record: %s by %q: %s", last.Type, last.Actor, last.Data)
	}
}

// openRebuilds returns how many records of rebuilds of the stream are open.
func (b *bundle) openRebuilds() int {
	b.t.Helper()
	all, err := operation.ReadOpen(b.ctx(), b.pool, operation.RebuildStream)
	if err != nil {
		b.t.Fatal(err)
	}
	return len(all)
}

// An act of rebuilding is on record. The relay makes the stream, and publishes the events again.
func TestRecordOfARebuiltStream(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	b.enqueue("coupon.send", "order-", 100)
	b.awaitPublished()
	for i := range 2 {
		if err := relays.RebuildStream(b.ctx(), b.pool, b.js, &relays.RebuildOptions{Actor: "alice"}); err != nil {
			t.Fatal(err)
		}
		if n := b.openRebuilds(); n != 0 {
			t.Fatalf("%d records are open", n)
		}
		b.await("another generation", func() bool { return b.generation() == i+2 })
	}
	b.awaitPublished()
	b.check()
	if acts, succeeded := b.operations(); len(acts) != 2 || succeeded != 2 ||
		!strings.Contains(acts[0], "stream.rebuild by alice") {
		t.Errorf("on record: %q, of which %d succeeded", acts, succeeded)
	}
}

// Pages are on their way to a stream that is being rebuilt. The relay makes the new stream without a failure.
func TestRebuildIsNoFailure(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var failures atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{RelayFailed: func(_ context.Context, err error) {
			t.Logf("the relay failed: %v", err)
			failures.Add(1)
		}}}
	})
	b.enqueue("coupon.send", "order-", 100)
	b.awaitPublished()
	for i := range 3 {
		if err := relays.RebuildStream(b.ctx(), b.pool, b.js, nil); err != nil {
			t.Fatal(err)
		}
		b.enqueueBatches("coupon.send", fmt.Sprintf("later-%d-", i), 50, 1)
		b.awaitPublished()
	}
	if n := failures.Load(); n != 0 {
		t.Errorf("the relay failed %d times", n)
	}
	b.check()
}

// A rebuilt stream has no consumers of durable subscribers. The configurations read before make them again.
func TestSubscribersAreMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	b.enqueue("coupon.send", "order-", 3)
	b.awaitPublished()
	made := jetstream.ConsumerConfig{
		Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 7,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 3,
		FilterSubjects: []string{"ledger.*.enqueued.>", "ledger.*.released.>"},
		Metadata:       map[string]string{"team": "billing"},
	}
	if _, err := b.js.CreateConsumer(b.ctx(), stream.Name, made); err != nil {
		t.Fatal(err)
	}
	before, err := relays.ReadStream(b.ctx(), b.pool, b.js, outbox.StreamConfig{})
	if err != nil || len(before.Subscribers) != 1 {
		t.Fatalf("before: %+v, %v", before, err)
	}
	if err := relays.RebuildStream(b.ctx(), b.pool, b.js, nil); err != nil {
		t.Fatal(err)
	}
	b.await("the stream has the events again", func() bool { return b.published() == 3+2 })
	again, err := b.js.CreateConsumer(b.ctx(), stream.Name, before.Subscribers[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := again.CachedInfo().NumPending; got != 3 { // without the record of the act, which is no business
		t.Errorf("%d messages wait for it, want 3", got)
	}
	after, err := relays.ReadStream(b.ctx(), b.pool, b.js, outbox.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(before.Subscribers, after.Subscribers); diff != "" {
		t.Errorf("subscribers (-before +after):\n%s", diff)
	}
	c := after.Subscribers[0]
	if c.MaxDeliver != 7 || len(c.FilterSubjects) != 2 || len(c.Metadata) != 1 || c.Metadata["team"] != "billing" {
		t.Errorf("made again as %+v", c)
	}
}
