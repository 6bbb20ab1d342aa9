package outbox_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// The stream is rebuilt beside the backlogs of two kinds without workers, one with small messages and one with large
// ones, which fill their share of it. The repair ends, a kind with workers does not wait for them, and their own
// workers receive every task once they come.
func TestRebuildBesideUnservedBacklogs(t *testing.T) {
	t.Parallel()
	for _, isListed := range []bool{false, true} {
		t.Run(fmt.Sprintf("listed=%v", isListed), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.relay(func(c *outbox.Config) { c.Stream.MaxBytes = 1 << 20 })
			b.enqueue("unserved.small", "order-", 4000)
			b.enqueueSized("unserved.large", "order-", 4000, 500, 2000)
			b.enqueue("coupon.send", "stuck-", 5)
			b.awaitPublished()
			if isListed {
				b.list()
			}
			if err := outbox.RebuildStream(b.ctx(), b.pool, b.js, nil); err != nil {
				t.Fatal(err)
			}
			b.await("the generation is 2", func() bool { return b.generation() == 2 })
			served := b.awaitWorkers("coupon.send")
			b.enqueue("coupon.send", "fresh-", 1)
			want, got := b.idsOf("coupon.send"), b.take(served, 6)
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the delivered messages differ from the ledger: %s", diff)
			}
			if err := outbox.AwaitStream(b.ctx(), b.pool, b.js, nil); err != nil {
				t.Fatal(err)
			}
			want, got = b.idsOf("unserved.large"), b.take(b.workers("unserved.large"), 4000)
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the delivered messages of unserved.large differ from the ledger: %s", diff)
			}
		})
	}
}

// list has the projector list all tasks, which are available, as lingering.
func (b *bundle) list() {
	b.t.Helper()
	present := `'snapshot', e.seen::text, 'top', e.top, 'bound', pg_current_xact_id()::text`
	ledgertest.ExecAsOwner(b.t, b.pool, fmt.Sprintf(listedSQL, present)+`
		insert into taskledger.task (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at,
		                             updated_at, lingering)
		select e.kind, e.biz_id, e.shard, 'available', false, 1, 0, 0, e.recorded_at, e.recorded_at, e.position
		  from taskledger.event e`)
}
