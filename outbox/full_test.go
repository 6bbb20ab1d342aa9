package outbox_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// A backlog of several times the stream's room stops nothing: the stream discards its oldest messages, which is not a
// loss, and keeps the newest. A durable consumer that is behind them is reported.
func TestFullStreamDiscardsTheOldest(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallPages, smallStream)
	const tasks = 2000
	b.await("the stream exists", func() bool { return b.status().Stream != nil })
	for name, filter := range map[string]string{"slow": "ledger.>", "other": "ledger.*.dead.>"} {
		c := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: filter}
		if _, err := b.stream().CreateConsumer(b.ctx(), c); err != nil {
			t.Fatal(err)
		}
	}
	b.enqueue("coupon.send", "order-", tasks)
	b.awaitPublished()
	r.end()
	b.relay(smallStream) // a page has more messages than there is room for
	b.enqueue("mail.send", "order-", tasks)
	b.awaitPublished()
	state := b.state()
	if state.LastSeq != 2*tasks || state.Bytes > 200<<10 {
		t.Errorf("%d messages were stored, of which %d bytes are left", state.LastSeq, state.Bytes)
	}
	if late := b.status().Stream.Late; !slices.Equal(late, []string{"slow"}) {
		t.Errorf("late consumers: %q", late)
	}
	if b.generation() != 1 || len(b.parked()) != 0 {
		t.Errorf("generation %d, %d parked events", b.generation(), len(b.parked()))
	}
	last := ledger.Position(0)
	for _, d := range b.deliveries() {
		last = max(last, d.Position)
	}
	if want := ledger.Position(2 * tasks); last != want {
		t.Errorf("the newest message is of position %d, want %d", last, want)
	}
}

// An operator gives the relay of a full stream a higher limit. The relay raises that of the stream. A lower limit
// changes nothing.
func TestLimitOfTheStreamIsRaised(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	larger := func(c *outbox.Config) { c.Stream.MaxBytes = 10 << 20 }
	for i, configure := range []func(*outbox.Config){smallStream, larger, smallStream} {
		r := b.relay(configure)
		b.enqueue("coupon.send", fmt.Sprint("order-", i), 1)
		b.awaitPublished()
		r.end()
	}
	if got := b.stream().CachedInfo().Config.MaxBytes; got != 10<<20 {
		t.Errorf("the stream may hold %d bytes", got)
	}
}
