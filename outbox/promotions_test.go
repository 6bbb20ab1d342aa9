package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// Two asynchronous standbys are promoted one after the other, and no relay runs between them. The first one lacks
// published events, the second one lacks commits of the first one whose positions others get. The relay explains what
// is lost, continues by itself and publishes every event.
func TestTwoPromotionsWithoutARelay(t *testing.T) {
	t.Parallel()
	first := ledgertest.Cluster(t, nil)
	second, there := startStandby(t, first)
	b := newBundleOn(t, openPool(t, first.URL(ledgertest.Database)), natsserver.Config{})
	r := b.relay()
	b.enqueue("coupon.send", "before-", 10)
	b.awaitPublished()
	b.disconnect(there)
	b.enqueue("coupon.send", "lost-", 100)
	b.awaitPublished()
	r.end()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := second.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pool = there
	b.enqueue("coupon.send", "between-", 50)
	third, last := startStandby(t, second)
	if _, err := b.pool.Exec(t.Context(), "checkpoint"); err != nil { // the standby gets what is flushed
		t.Fatal(err)
	}
	b.disconnect(last)
	b.enqueue("coupon.send", "lost-", 50)
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := third.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pool = last
	var undone atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{MessagesUndone: func(_ context.Context, n int) { undone.Add(int64(n)) }}}
	})
	b.enqueue("coupon.send", "lost-", 100)
	b.awaitPublished()
	onStream := make(map[string]int)
	for _, d := range b.deliveries() {
		onStream[d.ID()]++
	}
	events := 0
	for e, err := range ledger.Read(t.Context(), last, 0, 1<<30) {
		if err != nil {
			t.Fatal(err)
		}
		if events++; onStream[e.ID()] != 1 {
			t.Errorf("%s is on the stream %d times", e.ID(), onStream[e.ID()])
		}
	}
	if events != 160 || len(onStream) != 260 || undone.Load() != 100 {
		t.Errorf("%d events and %d messages, %d of them explained; want 160, 260 and 100", events, len(onStream),
			undone.Load())
	}
}
