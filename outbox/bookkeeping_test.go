package outbox_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// A filter of a type matches the kinds of users alone. Events of reserved kinds are on subjects of their own.
func TestBookkeepingIsNoBusiness(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	b.enqueue("coupon.send", "order-", 1)
	record := ledger.Key{Kind: "taskledger.operation", BizID: "1"}
	if _, err := ledger.Enqueue(reserved.Allow(b.ctx()), b.pool, record, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.awaitPublished()
	if n := len(b.check()); n != 2 {
		t.Fatalf("%d messages are on the stream, want 2", n)
	}
	for filter, want := range map[string]uint64{"ledger.*.enqueued.>": 1, "ledger.*.*.taskledger.>": 1, "ledger.>": 2} {
		c, err := b.stream().CreateConsumer(b.ctx(), jetstream.ConsumerConfig{FilterSubject: filter})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CachedInfo().NumPending; got != want {
			t.Errorf("%s matches %d messages, want %d", filter, got, want)
		}
	}
}
