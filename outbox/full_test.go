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

// Messages of kinds and shards without workers do not stop the relay: it spares the newer half of the stream alone.
// Workers of other kinds receive everything.
func TestUnservedKindsStopNothing(t *testing.T) {
	tests := []struct {
		name string
		hold func(b *bundle) // makes something hold the first message
	}{
		{name: "kind without workers", hold: func(b *bundle) { b.enqueue("mail.send", "order-", 1) }},
		{name: "shard without workers", hold: func(b *bundle) {
			b.enqueue("mail.send", "order-", 1)
			b.awaitPublished()
			m, err := b.stream().GetMsg(b.ctx(), 1)
			if err != nil {
				b.t.Fatal(err)
			}
			shard, _, _, err := stream.ParseSubject(m.Subject)
			if err != nil {
				b.t.Fatal(err)
			}
			b.workersOf("mail.send", ledger.AllShards&^ledger.ShardRange(shard, shard))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			var unread atomic.Uint64 // the newest message below which the relay purged
			b.relay(smallPages, smallStream, func(c *outbox.Config) {
				c.Hooks = []outbox.Hook{&hookFuncs{purged: func(below uint64) { unread.Store(below) }}}
			})
			c := b.awaitWorkers("coupon.send")
			test.hold(b)
			b.enqueue("coupon.send", "order-", 1500)
			if got := len(b.take(c, 1500)); got != 1500 {
				t.Errorf("workers received %d of 1500 messages", got)
			}
			b.awaitPublished()
			state := b.state()
			if unread.Load() <= 1 || state.Msgs < 100 {
				t.Errorf("purged below %d, %d messages left", unread.Load(), state.Msgs)
			}
		})
	}
}

// The relay does not purge what a durable subscriber has not acknowledged, however long it stays away.
func TestPurgeSparesDurableSubscribers(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var stopped atomic.Int64
	b.relay(smallPages, smallStream, func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{&hookFuncs{failed: func(error) { stopped.Add(1) }}}
	})
	work := b.awaitWorkers("coupon.send")
	config := jetstream.ConsumerConfig{
		Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	}
	audit, err := b.stream().CreateConsumer(b.ctx(), config)
	if err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "order-", 1500)
	b.awaitNote("the stream is full")
	b.take(work, 100)
	before := stopped.Load()
	b.await("the relay stops again", func() bool { return stopped.Load() >= before+3 })
	if got := b.state().FirstSeq; got != 1 {
		t.Errorf("the stream begins at %d, want 1", got)
	}
	var want []string
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, 2000) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e.ID())
	}
	var seen []string
	for taken := 100; len(seen) < len(want); {
		seen = append(seen, b.take(audit, 50)...)
		n := min(50, len(want)-taken)
		b.take(work, n)
		taken += n
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("the messages of the subscriber differ from the ledger: %s", diff)
	}
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
