package outbox_test

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Thousands of kinds without workers, more than a full stream can hold, take no requests of their own, so that tasks of
// another kind follow one another without delay. Each of them still receives its messages when it has workers.
func TestThousandsOfKindsTakeNoRequests(t *testing.T) {
	t.Parallel()
	const kinds, tasks = 12_000, 50
	b := newBundle(t)
	b.relay(func(c *outbox.Config) { c.Stream.MaxBytes = 2 << 20 })
	served := b.awaitWorkers("coupon.send")
	for from := 0; from < kinds; from += 1000 {
		var entries []ledger.Entry
		for i := from; i < from+1000; i++ {
			entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: unserved(i), BizID: "order-1"}})
		}
		if _, err := ledger.EnqueueMany(b.ctx(), b.pool, entries); err != nil {
			t.Fatal(err)
		}
	}
	before := b.requests()
	for i := range tasks {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", i))}
		if _, err := ledger.Enqueue(b.ctx(), b.pool, key, nil, nil); err != nil {
			t.Fatal(err)
		}
		b.take(served, 1)
	}
	if n := b.requests() - before; n > kinds/2 {
		t.Errorf("%d requests to JetStream while %d tasks ran beside %d kinds without workers", n, tasks, kinds)
	}
	for _, i := range []int{0, kinds / 2, kinds - 1} {
		b.take(b.workers(unserved(i)), 1)
	}
}

// requests returns how many requests JetStream's API has received.
func (b *bundle) requests() uint64 {
	b.t.Helper()
	info, err := b.js.AccountInfo(b.ctx())
	if err != nil {
		b.t.Fatal(err)
	}
	return info.API.Total
}

// The mark has what refills have published, also if no page follows them, so that the next relay does not publish it
// once more.
func TestMarkHasWhatRefillsPublished(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, smallStream)
	slow := b.awaitWorkers("coupon.send")
	b.enqueue("coupon.send", "order-", 1500)
	b.awaitPublished()
	marked := func() (position int64) {
		err := b.pool.QueryRow(b.ctx(), `
			select greatest((m.withheld->'places'->0->>'after')::bigint,
			                (m.withheld->'places'->0->'seen'->>'top')::bigint)
			  from taskledger.relay_mark m order by m.n desc limit 1`).Scan(&position)
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	before := marked()
	b.take(slow, 500)
	b.await("the mark has what was refilled", func() bool { return marked() > before })
}
