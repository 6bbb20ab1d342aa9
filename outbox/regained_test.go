package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/outbox"
)

// A relay is cut off from the database until its lease has ended. Meanwhile another relay publishes, and ends. The
// first relay then begins a new term, and continues where the other one has ended.
func TestRelayThatRegainsItsLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	freezer, pool := servicetest.NewFreezer(t, b.pool)
	var terms atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.DB = pool
		c.Hooks = []outbox.Hook{{LeadershipChanged: func(_ context.Context, is bool) {
			if is {
				terms.Add(1)
			}
		}}}
	})
	b.enqueue("coupon.send", "order-", 500)
	b.awaitPublished()
	freezer.Freeze()
	other := b.relay()
	b.enqueue("coupon.send", "late-", 500)
	b.awaitPublished()
	other.end()
	freezer.Thaw()
	b.await("the first relay has a second term", func() bool { return terms.Load() == 2 })
	b.enqueue("coupon.send", "last-", 10)
	b.awaitPublished()
	b.checkOnce()
}
