package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// editStream changes the settings of the stream, as an operator does.
func (b *bundle) editStream(edit func(c *jetstream.StreamConfig)) {
	b.t.Helper()
	c := b.stream().CachedInfo().Config
	edit(&c)
	if _, err := b.js.UpdateStream(b.ctx(), c); err != nil {
		b.t.Fatal(err)
	}
}

// checkOnce checks that each event is on the stream once, unless it is parked.
func (b *bundle) checkOnce() {
	b.t.Helper()
	seen := make(map[string]bool)
	for _, d := range b.check() {
		if seen[d.ID()] {
			b.t.Errorf("%s is on the stream twice", d.ID())
		}
		seen[d.ID()] = true
	}
}

// Messages have no ids. Nevertheless, each event is on the stream once after relays were killed at any point.
func TestKilledRelayRepeatsNothing(t *testing.T) {
	for _, point := range []string{fault.RelayPage, fault.RelayPublished} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			for i := range 4 {
				b.enqueueAndStart(fmt.Sprintf("order-%d-", i), 200) // two events of a task are in one page
				b.runKilled(point, min(i+1, 2))                     // also before the first cursor row
			}
			b.relay(smallPages)
			b.awaitPublished()
			b.checkOnce()
			for _, d := range b.deliveries() {
				if id := d.header.Get(nats.MsgIdHdr); id != "" {
					t.Fatalf("%s has the message id %q", d.ID(), id)
				}
			}
		})
	}
}

// Some messages of a page are larger than the stream takes. The relay parks these, and publishes the others once.
func TestRefusedAmongStored(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var published, duplicates atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{
			MessagesPublished: func(_ context.Context, n int) { published.Add(int64(n)) },
			DuplicatesDropped: func(_ context.Context, n int) { duplicates.Add(int64(n)) },
		}}
	})
	b.enqueue("coupon.send", "first-", 1)
	b.awaitPublished()
	b.editStream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	var entries []ledger.Entry
	for i := range 300 {
		size := 10
		if i%100 == 50 {
			size = 5000
		}
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint("order-", i))}
		entries = append(entries, ledger.Entry{Key: key, Args: json.RawMessage(fmt.Sprintf(`"%0*d"`, size, i))})
	}
	if _, err := ledger.EnqueueMany(b.ctx(), b.pool, entries); err != nil {
		t.Fatal(err)
	}
	b.awaitPublished()
	b.checkOnce()
	if n := len(b.parked()); n != 3 {
		t.Errorf("%d events are parked, want 3", n)
	}
	if published.Load() != 298 || duplicates.Load() != 0 {
		t.Errorf("%d messages were reported as published, and %d as duplicates", published.Load(), duplicates.Load())
	}
}

// newRefused returns a ledger with two events of a task of which the stream will refuse the first one. No relay works.
func newRefused(t *testing.T) *bundle {
	t.Helper()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "first-", 1)
	b.awaitPublished()
	r.end()
	b.editStream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	b.enqueueSized("coupon.send", "large-", 1, 1, 5000)
	b.append(ledger.Key{Kind: "coupon.send", BizID: "large-0"}, 1, ledger.EventStarted)
	return b
}

// An event is parked, and the next one of its task is published once.
func TestRefusedBeforeTheNextOfItsTask(t *testing.T) {
	t.Parallel()
	b := newRefused(t)
	b.relay()
	b.awaitPublished()
	b.checkOnce()
	if n := len(b.parked()); n != 1 {
		t.Errorf("%d events are parked, want 1", n)
	}
}

// A relay is killed when it has parked an event and published the next one of its task: that one is published once.
func TestKilledAfterARefusal(t *testing.T) {
	t.Parallel()
	b := newRefused(t)
	b.runKilled(fault.RelayPublished, 1)
	before := b.state().LastSeq
	b.relay()
	b.awaitPublished()
	b.check()
	if n := b.state().LastSeq - before; n != 0 {
		t.Errorf("the event behind the refused one was published %d times more", n)
	}
}

// A relay process is stopped when it is about to send a page, and continues when another relay has sent it.
func TestFrozenRelaySendsNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 300)
	frozen := b.freezeRelay(fault.RelayPage)
	second := b.relay()
	b.awaitPublished()
	second.end()
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.enqueue("later.send", "order-", 1)
	b.awaitPublished() // by the process
	b.checkOnce()
}
