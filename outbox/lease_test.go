package outbox_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/outbox"
)

// leading counts how many of the relays lead.
func leading(counter *atomic.Int64) func(*outbox.Config) {
	return func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{nil, &hookFuncs{leading: func(leads bool) {
			if leads {
				counter.Add(1)
			} else {
				counter.Add(-1)
			}
		}}}
	}
}

func TestOneRelayWorks(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var first, second atomic.Int64
	one := b.relay(smallPages, leading(&first))
	b.await("the first relay leads", func() bool { return first.Load() == 1 })
	b.relay(smallPages, leading(&second))
	b.enqueue("coupon.send", "order-", 1000)
	b.settle()
	if second.Load() != 0 {
		t.Error("the second relay leads beside the first")
	}
	one.end()
	b.await("the second relay leads", func() bool { return second.Load() == 1 })
	b.enqueue("coupon.send", "later-", 100)
	b.settle()
	if all := b.check(); len(all) != 1100 {
		t.Errorf("%d messages on the stream, want 1100: a hand-over repeated some", len(all))
	}
}

// A relay that stalls in mid-page loses its lease. When it wakes, it publishes its page once
// more, cannot advance, and harms nobody. Not parallel: the point is the process's.
func TestLeaseLostInMidPage(t *testing.T) {
	b := newBundle(t)
	stalled, wake := make(chan struct{}), make(chan struct{})
	var once sync.Once
	remove := fault.Set(outbox.FaultPage, func() {
		stall := false
		once.Do(func() { stall = true })
		if stall {
			close(stalled)
			<-wake
		}
	})
	defer remove()
	b.enqueue("coupon.send", "order-", 500)
	var failed atomic.Int64
	b.relay(smallPages, func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{&hookFuncs{failed: func(error) { failed.Add(1) }}}
	})
	<-stalled
	// Long enough for the stalled relay to see at its next renewal that it lost.
	if _, err := b.pool.Exec(b.ctx(), `update taskledger.lease set holder = 'somebody/else', alive_until = clock_timestamp() + interval '3 seconds' where name = 'relay'`); err != nil {
		t.Fatal(err)
	}
	var second atomic.Int64
	b.relay(smallPages, leading(&second))
	b.await("the second relay leads", func() bool { return second.Load() == 1 })
	b.settle()
	close(wake)
	b.enqueue("coupon.send", "later-", 500)
	b.settle()
	b.check()
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
}

// A relay that believes to have the lease and has not: the cursor lets only one of the two go on.
func TestTwoRelaysThatBothBelieveToLead(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 3000)
	var one, two atomic.Int64
	b.relay(smallPages, leading(&one))
	b.await("the first relay leads", func() bool { return one.Load() == 1 })
	for range 10 { // snatched again and again, each time in mid-work
		if _, err := b.pool.Exec(b.ctx(), `delete from taskledger.lease`); err != nil {
			t.Fatal(err)
		}
		b.relay(smallPages, leading(&two)).end()
	}
	b.settle()
	b.check()
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
}
