package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Tasks with large args become available again together. The relay loads and publishes their args in parts of about
// 8 MiB, and each event once.
func TestLargeArgsAreLoadedInParts(t *testing.T) {
	t.Parallel()
	const tasks, size = 90, 250_000
	b := newBundle(t)
	var most atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{MessagesPublished: func(_ context.Context, n int) {
			most.Store(max(most.Load(), int64(n)))
		}}}
	})
	b.enqueueSized("coupon.send", "order-", tasks, tasks, size)
	b.awaitPublished()
	b.appendEach("coupon.send", "order-", tasks, ledger.EventReleased)
	b.awaitPublished()
	b.check()
	if got := most.Load() * size; got > 9<<20 {
		t.Errorf("a part of a page has messages of %d bytes", got)
	}
}

// appendEach appends the second event to each of n tasks, in statements of 500.
func (b *bundle) appendEach(kind ledger.Kind, prefix string, n int, typ ledger.EventType) {
	b.t.Helper()
	for from := 0; from < n; from += 500 {
		var requests []ledger.AppendRequest
		for i := from; i < min(n, from+500); i++ {
			key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprintf("%s%d", prefix, i))}
			requests = append(requests, ledger.AppendRequest{Key: key, Expected: 1, Type: typ, Actor: "test"})
		}
		for _, r := range ledger.AppendEach(b.ctx(), b.pool, requests) {
			if r.Err != nil {
				b.t.Fatal(r.Err)
			}
		}
	}
}
