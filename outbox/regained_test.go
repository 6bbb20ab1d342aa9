package outbox_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A relay is cut off from the database until its lease has ended. Meanwhile another relay publishes and withholds tasks
// that the projector has not counted yet, and ends. The first relay then begins a new term: it does not take these
// tasks for finished, so their workers receive all of them.
func TestRelayThatRegainsItsLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	freezer, pool := servicetest.NewFreezer(t, b.pool)
	small := func(c *outbox.Config) { c.Stream.MaxBytes = 1 << 20 }
	var terms atomic.Int64
	b.relay(small, func(c *outbox.Config) {
		c.DB = pool
		c.Hooks = []outbox.Hook{&hookFuncs{leading: func(is bool) {
			if is {
				terms.Add(1)
			}
		}}}
	})
	b.enqueue("waiting.send", "order-", 500)
	b.awaitPublished()
	present := `'snapshot', e.seen::text, 'top', e.top, 'bound', pg_current_xact_id()::text`
	ledgertest.ExecAsOwner(t, b.pool, fmt.Sprintf(listedSQL, present)+`
		insert into taskledger.task_count (kind, state, n, value) values ('waiting.send', 'available', 1, 500)`)

	freezer.Freeze()
	other := b.relay(small)
	const tasks = 500
	b.enqueue("late.send", "order-", tasks)
	b.awaitPublished()
	other.end()
	freezer.Thaw()
	b.await("the first relay has a second term", func() bool { return terms.Load() == 2 })
	b.take(b.workers("late.send"), tasks)
}
