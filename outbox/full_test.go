package outbox_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// smallStream holds some 300 messages.
func smallStream(c *outbox.Config) { c.Stream.MaxBytes = 200 << 10 }

// workers creates the consumer of a kind.
func (b *bundle) workers(kind ledger.Kind) jetstream.Consumer {
	return b.workersOf(kind, ledger.AllShards)
}

// workersOf creates the consumer of a kind in some shards.
func (b *bundle) workersOf(kind ledger.Kind, shards ledger.ShardSet) jetstream.Consumer {
	b.t.Helper()
	c, err := b.stream().CreateOrUpdateConsumer(b.ctx(), jetstream.ConsumerConfig{
		Durable: stream.Durable(kind, shards), FilterSubjects: stream.WorkSubjects(kind, shards),
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// awaitWorkers waits for the stream and creates the consumer of a kind.
func (b *bundle) awaitWorkers(kind ledger.Kind) jetstream.Consumer {
	b.t.Helper()
	b.await("the stream exists", func() bool { _, err := b.js.Stream(b.ctx(), stream.Name); return err == nil })
	return b.workers(kind)
}

// take acknowledges n messages and returns the ids of their events in order of first appearance.
func (b *bundle) take(c jetstream.Consumer, n int) []string {
	b.t.Helper()
	seen := make(map[string]bool)
	var ids []string
	for deadline := time.Now().Add(patience); len(ids) < n; {
		if time.Now().After(deadline) {
			b.t.Fatalf("%d messages were delivered, want %d", len(ids), n)
		}
		msgs, err := c.Fetch(n-len(ids), jetstream.FetchMaxWait(100*time.Millisecond))
		if err != nil {
			b.t.Fatal(err)
		}
		for msg := range msgs.Messages() {
			m, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
			if err != nil {
				b.t.Fatal(err)
			}
			if err := msg.Ack(); err != nil {
				b.t.Fatal(err)
			}
			if !seen[m.ID()] {
				seen[m.ID()] = true
				ids = append(ids, m.ID())
			}
		}
	}
	return ids
}

// A full stream stops the relay before a page and loses no message. The relay makes room by purging the
// messages that all consumers have acknowledged, and no others.
func TestFullStream(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var purged, lost, duplicates atomic.Int64
	b.relay(smallPages, smallStream, func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{&hookFuncs{
			purged:     func(uint64) { purged.Add(1) },
			lost:       func(string) { lost.Add(1) },
			duplicates: func(n int) { duplicates.Add(int64(n)) },
		}}
	})
	c := b.awaitWorkers("coupon.send")
	b.enqueue("coupon.send", "order-", 1500)
	b.awaitNote("the stream is full")
	full := b.state()
	if full.FirstSeq != 1 || full.Msgs < 100 {
		t.Errorf("stopped with %+v: the relay purged unacknowledged messages, or stopped early", full)
	}

	ids := b.take(c, 1500)
	b.awaitPublished()
	var want []string
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, 2000) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e.ID())
	}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("the delivered messages differ from the ledger: %s", diff)
	}
	if full.Msgs%100 != 0 || duplicates.Load() != 0 {
		t.Errorf("%d messages, %d duplicates: the relay stopped inside a page", full.Msgs, duplicates.Load())
	}
	if purged.Load() == 0 {
		t.Error("nothing was purged")
	}
	if lost.Load() != 0 || b.generation() != 1 {
		t.Errorf("%d losses, generation %d: the relay treated its own purge as a loss", lost.Load(), b.generation())
	}
}

// The relay does not purge the messages of a kind without workers, nor those that a subscriber lags behind.
func TestPurgeSparesNeededMessages(t *testing.T) {
	for _, reason := range []string{"a-kind-without-workers", "a-subscriber-that-lags"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			var stopped atomic.Int64
			b.relay(smallPages, smallStream, func(c *outbox.Config) {
				c.Hooks = []outbox.Hook{&hookFuncs{failed: func(error) { stopped.Add(1) }}}
			})
			b.enqueue("coupon.send", "order-", 50)
			b.enqueue("mail.send", "order-", 1)
			b.awaitPublished()
			if reason == "a-subscriber-that-lags" {
				b.take(b.workers("mail.send"), 1)
				config := jetstream.ConsumerConfig{Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy}
				if _, err := b.stream().CreateConsumer(b.ctx(), config); err != nil {
					t.Fatal(err)
				}
			}
			b.enqueue("coupon.send", "more-", 1000)
			b.awaitNote("the stream is full")
			b.take(b.workers("coupon.send"), 100)
			before := stopped.Load()
			b.await("the relay stops again", func() bool { return stopped.Load() >= before+3 })
			spared := uint64(51)
			if reason == "a-subscriber-that-lags" {
				spared = 1
			}
			if got := b.state().FirstSeq; got != spared {
				t.Errorf("the stream begins at %d, want %d", got, spared)
			}
		})
	}
}

// The relay does not purge the messages of shards without workers, although other shards of the kind have some.
func TestPurgeSparesShardsWithoutWorkers(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var stopped atomic.Int64
	b.relay(smallPages, smallStream, func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{&hookFuncs{failed: func(error) { stopped.Add(1) }}}
	})
	b.enqueue("coupon.send", "order-", 50)
	b.enqueue("mail.send", "order-", 1)
	b.awaitPublished()
	m, err := b.stream().GetMsg(b.ctx(), 51)
	if err != nil {
		t.Fatal(err)
	}
	shard, _, _, err := stream.ParseSubject(m.Subject)
	if err != nil {
		t.Fatal(err)
	}
	unserved := ledger.ShardRange(shard, shard)
	b.workersOf("mail.send", ledger.AllShards&^unserved)
	b.enqueue("coupon.send", "more-", 1000)
	b.awaitNote("the stream is full")
	b.take(b.workers("coupon.send"), 100)
	before := stopped.Load()
	b.await("the relay stops again", func() bool { return stopped.Load() >= before+3 })
	if got := b.state().FirstSeq; got != 51 {
		t.Errorf("the stream begins at %d, want 51", got)
	}
	b.take(b.workersOf("mail.send", unserved), 1)
	b.await("the stream is purged further", func() bool { return b.state().FirstSeq > 51 })
}

// awaitNote waits until the lease of the relay has a note with a text.
func (b *bundle) awaitNote(text string) {
	b.t.Helper()
	b.await("the note has: "+text, func() bool {
		r := b.status().Relay
		return r != nil && strings.Contains(r.Note, text)
	})
}

func (b *bundle) status() outbox.Status {
	b.t.Helper()
	s, err := outbox.ReadStatus(b.ctx(), b.pool, b.js, outbox.StreamConfig{})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}
