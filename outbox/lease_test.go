package outbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// leading counts the relays that lead.
func leading(counter *atomic.Int64) func(*outbox.Config) {
	return func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{}, {LeadershipChanged: func(_ context.Context, isLeading bool) {
			if isLeading {
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
	b.awaitPublished()
	if second.Load() != 0 {
		t.Error("two relays lead at the same time")
	}
	one.end()
	b.await("the second relay leads", func() bool { return second.Load() == 1 })
	b.enqueue("coupon.send", "later-", 100)
	b.awaitPublished()
	if all := b.check(); len(all) != 1100 {
		t.Errorf("%d messages on the stream, want 1100: the second relay repeated some", len(all))
	}
}

// A relay that stalls within a page loses its lease. When it resumes, it publishes its page again, and cannot
// move the cursor. Not parallel: the crash point is of the whole process.
func TestLeaseLostWithinAPage(t *testing.T) {
	b := newBundle(t)
	stalled, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	remove := fault.Set(fault.RelayPage, func() {
		stall := false
		once.Do(func() { stall = true })
		if stall {
			close(stalled)
			<-resume
		}
	})
	defer remove()
	b.enqueue("coupon.send", "order-", 500)
	var failed atomic.Int64
	b.relay(smallPages, func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{RelayFailed: func(context.Context, error) { failed.Add(1) }}}
	})
	<-stalled
	// The stalled relay loses the lease at its next renewal, which comes within 3 s.
	_, err := b.pool.Exec(b.ctx(), `update taskledger.lease
		set holder = 'another/relay', alive_until = clock_timestamp() + interval '3 seconds' where name = 'relay'`)
	if err != nil {
		t.Fatal(err)
	}
	var second atomic.Int64
	b.relay(smallPages, leading(&second))
	b.await("the second relay leads", func() bool { return second.Load() == 1 })
	b.awaitPublished()
	close(resume)
	b.enqueue("coupon.send", "later-", 500)
	b.awaitPublished()
	b.check()
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
}

// If two relays lead at the same time, the cursor accepts the pages of one.
func TestTwoRelaysLead(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 3000)
	var one, two atomic.Int64
	b.relay(smallPages, leading(&one))
	b.await("the first relay leads", func() bool { return one.Load() == 1 })
	for range 10 { // each time while the first one works
		ledgertest.ExecAsOwner(t, b.pool, `delete from taskledger.lease`)
		b.relay(smallPages, leading(&two)).end()
	}
	b.awaitPublished()
	b.check()
	if got := b.generation(); got != 1 {
		t.Errorf("generation %d, want 1", got)
	}
}

// A relay and a worker took their leases while the clock was ahead by hours, and were killed. The status does not show
// that relay as alive. Another relay takes over after one term, and the worker counts as lost after one of its own.
func TestLeasesFromBeforeAStepOfTheClock(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 10)
	ledgertest.ExecAsOwner(t, b.pool, `
		insert into taskledger.lease (name, holder, since, alive_until, term, detail) values
		  ('relay', 'killed/relay', now() + interval '3 hours', now() + interval '3 hours', '1 s', null),
		  ('worker/killed', 'killed', now() + interval '3 hours', now() + interval '3 hours', '1 s',
		   '{"kinds":["coupon.send"]}')`)
	status, err := relays.ReadStatus(b.ctx(), b.pool, nil, outbox.StreamConfig{})
	if err != nil || status.Relay == nil || status.Relay.Alive {
		t.Errorf("the lease of the killed relay: %+v, %v, want that it is not alive", status.Relay, err)
	}
	tx, err := ledgertest.As(t, b.pool, ledgertest.Owner).Begin(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx(), `select from taskledger.lease where name = 'worker/killed' for update`); err != nil {
		t.Fatal(err)
	}
	b.relay(smallPages)
	b.awaitPublished() // although a transaction has locked the lease of the worker
	if err := tx.Rollback(b.ctx()); err != nil {
		t.Fatal(err)
	}
	b.await("the killed worker counts as lost", func() bool {
		isLost := false
		err := b.pool.QueryRow(b.ctx(),
			`select alive_ms = 0 from taskledger_internal.worker_alive_ms('killed', 'coupon.send')`).Scan(&isLost)
		return err == nil && isLost
	})
}
