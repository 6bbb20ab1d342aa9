package outbox_test

import (
	"fmt"
	"slices"
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

// largerStream holds some 15,000 messages.
func largerStream(c *outbox.Config) { c.Stream.MaxBytes = 10 << 20 }

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

// take acknowledges n messages and returns the ids of their events in order of first appearance. It fails if no message
// comes for a while.
func (b *bundle) take(c jetstream.Consumer, n int) []string {
	b.t.Helper()
	seen := make(map[string]bool)
	var ids []string
	for last := time.Now(); len(ids) < n; {
		if time.Since(last) > patience {
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
				last = time.Now()
			}
		}
	}
	return ids
}

// A backlog of ten times the stream's room stops nothing: its messages beyond the kind's share are withheld, and its
// workers receive each of them once, in the order of the ledger. Nothing of this counts as a loss.
func TestBacklogIsWithheld(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var lost, duplicates atomic.Int64
	b.relay(smallPages, smallStream, func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{&hookFuncs{
			lost:       func(string) { lost.Add(1) },
			duplicates: func(n int) { duplicates.Add(int64(n)) },
		}}
	})
	slow, quick := b.awaitWorkers("coupon.send"), b.workers("mail.send")
	b.enqueue("coupon.send", "order-", 2000)
	b.awaitPublished()
	if got := b.state().Msgs; got > 250 {
		t.Errorf("%d messages of one kind are on a stream with room for 300", got)
	}
	for i := range 5 {
		b.enqueue("mail.send", fmt.Sprintf("round-%d-", i), 200)
		b.take(quick, 200)
	}
	want := b.idsOf("coupon.send")
	if diff := cmp.Diff(want, b.take(slow, len(want))); diff != "" {
		t.Errorf("the delivered messages differ from the ledger: %s", diff)
	}
	b.enqueue("coupon.send", "later-", 500) // published as they come
	b.take(slow, 500)
	if lost.Load() != 0 || b.generation() != 1 || duplicates.Load() != 0 {
		t.Errorf("%d losses, generation %d, %d duplicates", lost.Load(), b.generation(), duplicates.Load())
	}
}

// The stream is lost while a kind is withheld, and its backlog is more than the new stream can hold. Workers receive
// every task, and other kinds are not delayed.
func TestStreamLostBesideABacklog(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, smallStream)
	b.awaitWorkers("coupon.send")
	b.enqueue("coupon.send", "order-", 1000)
	b.awaitPublished()
	if got := b.status().Withheld; len(got) != 1 {
		t.Fatalf("withheld: %v", got)
	}
	if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
		t.Fatal(err)
	}
	b.await("another generation", func() bool { return b.status().Generation > 1 })
	slow, quick := b.awaitWorkers("coupon.send"), b.workers("mail.send")
	b.enqueue("mail.send", "after-", 100)
	b.take(quick, 100)
	want := b.idsOf("coupon.send")
	got := b.take(slow, len(want))
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the delivered messages differ from the ledger: %s", diff)
	}
}

// idsOf returns the ids of the events of a kind in the order of their positions.
func (b *bundle) idsOf(kind ledger.Kind) (ids []string) {
	b.t.Helper()
	return b.idsIn(kind, ledger.AllShards)
}

// Tasks without workers do not stop the relay, and receive their messages when there are workers.
func TestUnservedKindsStopNothing(t *testing.T) {
	tests := []struct {
		name  string
		tasks int
		parts bool // workers of some shards only
	}{
		{name: "one message at the front", tasks: 1},
		{name: "more than there is room for", tasks: 1000},
		{name: "workers of some shards", tasks: 10, parts: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.relay(smallPages, smallStream)
			served := b.awaitWorkers("coupon.send")
			b.enqueue("mail.send", "order-", test.tasks)
			if test.parts {
				b.awaitPublished()
				b.workersOf("mail.send", ledger.ShardRange(0, 0))
			}
			for i := range 5 {
				b.enqueue("coupon.send", fmt.Sprintf("round-%d-", i), 300)
				b.take(served, 300)
			}
			if test.parts {
				return
			}
			want := b.idsOf("mail.send")
			if diff := cmp.Diff(want, b.take(b.workers("mail.send"), len(want))); diff != "" {
				t.Errorf("the delivered messages differ from the ledger: %s", diff)
			}
		})
	}
}

// Kinds without workers leave most of the stream to the others, however many tasks and kinds there are.
func TestUnservedKindsHaveASmallShare(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, func(c *outbox.Config) { c.Stream.MaxBytes = 1 << 20 })
	for i := range 30 {
		b.enqueueSized(ledger.Kind(fmt.Sprintf("misspelt.k%d", i)), "order-", 100, 100, 1000)
	}
	b.awaitPublished()
	if got := b.state().Bytes; got > 1<<20/4 {
		t.Errorf("kinds without workers use %d of %d bytes", got, 1<<20)
	}
	if got := b.status().Withheld; len(got) != 30 {
		t.Errorf("%d kinds are withheld, want 30", len(got))
	}
}

// Some shards of a kind have workers and others do not, and its backlog is ten times the stream's room. The workers
// receive all tasks of their shards in order, also those that come later, and so do the other ones once they have
// workers. A relay that begins meanwhile goes on.
func TestUnservedShardsStopNoOthers(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallPages, smallStream)
	b.awaitWorkers("coupon.send")
	low, high := ledger.ShardRange(0, 31), ledger.ShardRange(32, 63)
	served := b.workersOf("mail.send", low)
	b.enqueue("mail.send", "order-", 2000)
	first := b.idsIn("mail.send", low)
	got := b.take(served, len(first)/2)
	r.end()
	b.relay(smallPages, smallStream)
	got = append(got, b.take(served, len(first)-len(got))...)
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("the delivered messages of served shards differ from the ledger: %s", diff)
	}
	b.enqueue("mail.send", "later-", 500)
	later := b.idsIn("mail.send", low)[len(first):]
	if diff := cmp.Diff(later, b.take(served, len(later))); diff != "" {
		t.Errorf("the later messages of served shards differ from the ledger: %s", diff)
	}
	others := b.workersOf("mail.send", high)
	want := b.idsIn("mail.send", high)
	if diff := cmp.Diff(want, b.take(others, len(want))); diff != "" {
		t.Errorf("the delivered messages of the other shards differ from the ledger: %s", diff)
	}
	b.await("no kind to be withheld", func() bool { return len(b.status().Withheld) == 0 })
}

// idsIn returns the ids of the events of a kind in some shards, in the order of their positions.
func (b *bundle) idsIn(kind ledger.Kind, shards ledger.ShardSet) (ids []string) {
	b.t.Helper()
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, 10_000) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e.Kind == kind && shards.Has(e.Shard) {
			ids = append(ids, e.ID())
		}
	}
	return ids
}

// However many kinds have no workers, their messages leave room for those of others.
func TestManyUnservedKindsStopNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, smallStream)
	served := b.awaitWorkers("coupon.send")
	const kinds, tasks = 600, 3
	for i := range kinds {
		b.enqueue(unserved(i), "order-", tasks)
	}
	for i := range 3 {
		b.enqueue("coupon.send", fmt.Sprintf("round-%d-", i), 50)
		b.take(served, 50)
	}
	for _, i := range []int{0, kinds / 2, kinds - 1} {
		want := b.idsOf(unserved(i))
		if diff := cmp.Diff(want, b.take(b.workers(unserved(i)), len(want))); diff != "" {
			t.Errorf("the delivered messages of %s differ from the ledger: %s", unserved(i), diff)
		}
	}
}

// Few large messages and many small ones, both without workers, leave room for those of others.
func TestMixedSizesStopNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(largerStream)
	served := b.awaitWorkers("coupon.send")
	b.enqueue("mail.small", "order-", 8000)
	b.awaitPublished()
	b.enqueueSized("mail.large", "order-", 100, 1, 200_000)
	for i := range 6 {
		b.enqueue("coupon.send", fmt.Sprintf("round-%d-", i), 100)
		b.take(served, 100)
		if i == 2 { // the next relay must find the sizes by itself
			r.end()
			r = b.relay(largerStream)
		}
	}
	for _, kind := range []ledger.Kind{"mail.large", "mail.small"} {
		want := b.idsOf(kind)
		if diff := cmp.Diff(want, b.take(b.workers(kind), len(want))); diff != "" {
			t.Errorf("the delivered messages of %s differ from the ledger: %s", kind, diff)
		}
	}
}

// Large messages before small ones of the same kinds, without workers, leave room for those of others.
func TestLargeBeforeSmallStopsNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(largerStream)
	served := b.awaitWorkers("coupon.send")
	for i := range 4 {
		b.enqueueSized(unserved(i), "large-", 17, 17, 200_000)
		b.enqueue(unserved(i), "small-", 80)
	}
	for i := range 3 {
		b.enqueue("coupon.send", fmt.Sprintf("round-%d-", i), 100)
		b.take(served, 100)
	}
	want := b.idsOf(unserved(3))
	if diff := cmp.Diff(want, b.take(b.workers(unserved(3)), len(want))); diff != "" {
		t.Errorf("the delivered messages differ from the ledger: %s", diff)
	}
}

// unserved returns the i-th kind without workers.
func unserved(i int) ledger.Kind { return ledger.Kind(fmt.Sprintf("unserved.k%d", i)) }

// A durable subscriber that stays away does not hold up workers. The status names it, and the position from which it
// must read the ledger.
func TestAbsentSubscriberStopsNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, smallStream)
	work := b.awaitWorkers("coupon.send")
	b.enqueue("coupon.send", "before-", 10)
	b.take(work, 10)
	audit, err := b.stream().CreateConsumer(b.ctx(), jetstream.ConsumerConfig{
		Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := b.take(audit, 10)
	for i := range 5 {
		b.enqueue("coupon.send", fmt.Sprintf("round-%d-", i), 300)
		b.take(work, 300)
	}
	all := b.idsOf("coupon.send")
	missed, ok := b.status().Missed["audit"]
	if !ok {
		t.Fatalf("status: %+v", b.status().Missed)
	}
	var from []string
	for e, err := range ledger.Read(b.ctx(), b.pool, missed.From-1, 10_000) {
		if err != nil {
			t.Fatal(err)
		}
		from = append(from, e.ID())
	}
	if diff := cmp.Diff(all, append(seen, from...)); diff != "" {
		t.Errorf("what it received and the ledger from the position on differ from all events: %s", diff)
	}
	if err := b.stream().DeleteConsumer(b.ctx(), "audit"); err != nil {
		t.Fatal(err)
	}
	b.await("the status forgets the subscriber", func() bool {
		b.enqueue("coupon.send", fmt.Sprintf("more-%d-", time.Now().UnixNano()), 100)
		b.take(work, 100)
		return len(b.status().Missed) == 0
	})
}

// A worker has a message in flight while an absent subscriber fills the stream. If it is killed, another one receives
// the message, because the acknowledged messages make room enough.
func TestFullStreamKeepsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, smallStream)
	work, mails := b.awaitWorkers("coupon.send"), b.awaitWorkers("mail.send")
	b.enqueue("mail.send", "mail-", 1)
	batch, err := mails.Fetch(1)
	if err != nil {
		t.Fatal(err)
	}
	inFlight, ok := <-batch.Messages()
	if !ok {
		t.Fatal(batch.Error())
	}
	if _, err := b.stream().CreateConsumer(b.ctx(), jetstream.ConsumerConfig{
		Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.enqueue("coupon.send", fmt.Sprintf("round-%d-", i), 300)
		b.take(work, 300)
	}
	if _, isCleared := b.status().Missed["audit"]; !isCleared {
		t.Fatal("nothing was removed from the stream")
	}
	if _, err := b.stream().GetLastMsgForSubject(b.ctx(), inFlight.Subject()); err != nil {
		t.Errorf("the message in flight was removed: %v", err)
	}
}

// An operator gives the relay of a full stream a higher limit. The relay raises that of the stream, and publishes what
// was withheld. A lower limit changes nothing.
func TestLimitOfTheStreamIsRaised(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallPages, smallStream)
	b.enqueue("coupon.send", "order-", 1000)
	b.awaitPublished()
	if got := b.status().Withheld; len(got) != 1 {
		t.Fatalf("withheld: %v", got)
	}
	r.end()
	r = b.relay(smallPages, largerStream)
	b.await("all messages are on the stream", func() bool {
		return len(b.status().Withheld) == 0 && b.state().Msgs == 1000
	})
	r.end()
	b.relay(smallPages, smallStream)
	b.enqueue("coupon.send", "more-", 100)
	b.awaitPublished()
	if got := b.stream().CachedInfo().Config.MaxBytes; got != 10<<20 {
		t.Errorf("the stream may hold %d bytes", got)
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
