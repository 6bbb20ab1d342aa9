package outbox_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// editStream changes the settings of the stream, as an operator does.
func (b *bundle) editStream(edit func(c *jetstream.StreamConfig)) {
	b.t.Helper()
	c := b.stream().CachedInfo().Config
	edit(&c)
	if _, err := b.js.UpdateStream(b.ctx(), c); err != nil {
		b.t.Fatal(err)
	}
}

// checkOnce checks that each event is on the stream once, unless it is parked.
func (b *bundle) checkOnce() {
	b.t.Helper()
	seen := make(map[string]bool)
	for _, d := range b.check() {
		if seen[d.ID()] {
			b.t.Errorf("%s is on the stream twice", d.ID())
		}
		seen[d.ID()] = true
	}
}

// New events have no message id on a stream of one server. Nevertheless, each is on the stream once after relays were
// killed at any point.
func TestKilledRelayRepeatsNothing(t *testing.T) {
	for _, point := range []string{outbox.FaultPage, outbox.FaultSend, outbox.FaultPublished} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			for i := range 4 {
				b.enqueueAndStart(fmt.Sprintf("order-%d-", i), 200) // two events of a task are in one page
				b.runKilled(point, min(i+1, 2))                     // also before the first cursor row
			}
			b.relay(smallPages)
			b.awaitPublished()
			b.checkOnce()
			for _, d := range b.deliveries() {
				if id := d.header.Get(nats.MsgIdHdr); id != "" {
					t.Fatalf("%s has the message id %q", d.ID(), id)
				}
			}
		})
	}
}

// A stream refuses some messages of a page, so that the relay does not know which. It parks these, and publishes the
// others once.
func TestRefusedAmongStored(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var published, duplicates atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{&hookFuncs{
			published:  func(n int) { published.Add(int64(n)) },
			duplicates: func(n int) { duplicates.Add(int64(n)) },
		}}
	})
	b.enqueue("coupon.send", "first-", 1)
	b.awaitPublished()
	b.editStream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	var entries []ledger.Entry
	for i := range 300 {
		size := 10
		if i%100 == 50 {
			size = 5000
		}
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint("order-", i))}
		entries = append(entries, ledger.Entry{Key: key, Args: json.RawMessage(fmt.Sprintf(`"%0*d"`, size, i))})
	}
	if _, err := ledger.EnqueueMany(b.ctx(), b.pool, entries); err != nil {
		t.Fatal(err)
	}
	b.awaitPublished()
	b.checkOnce()
	if n := len(b.parked()); n != 3 {
		t.Errorf("%d events are parked, want 3", n)
	}
	if published.Load() != 298 || duplicates.Load() != 0 {
		t.Errorf("%d messages were reported as published, and %d as duplicates", published.Load(), duplicates.Load())
	}
}

// newRefused returns a ledger with two events of a task of which the stream will refuse the first one. No relay works.
func newRefused(t *testing.T) *bundle {
	t.Helper()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "first-", 1)
	b.awaitPublished()
	r.end()
	b.editStream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	b.enqueueSized("coupon.send", "large-", 1, 1, 5000)
	b.append(ledger.Key{Kind: "coupon.send", BizID: "large-0"}, 1, ledger.EventStarted)
	return b
}

// The stream refuses a message, and has stored the next one of its task: that one is published once.
func TestRefusedBeforeTheNextOfItsTask(t *testing.T) {
	t.Parallel()
	b := newRefused(t)
	b.relay()
	b.awaitPublished()
	b.checkOnce()
	if n := len(b.parked()); n != 1 {
		t.Errorf("%d events are parked, want 1", n)
	}
}

// A relay is killed when the stream has refused an event and stored the next one of its task. The next relay publishes
// that one behind the refused one, which is refused again, and no third time.
func TestKilledAfterARefusal(t *testing.T) {
	t.Parallel()
	b := newRefused(t)
	b.runKilled(outbox.FaultPublished, 1)
	before := b.state().LastSeq
	b.relay()
	b.awaitPublished()
	b.check()
	if n := b.state().LastSeq - before; n > 1 {
		t.Errorf("the event behind the refused one was published %d times, want 1", n)
	}
}

// Messages that a session finds and never takes do not keep the mark from moving: one of an event that was published
// long ago, as the reconciler sends it, and one of an event that a crash has undone. The next session would read
// everything since then.
func TestAccountedBehindOtherMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	r.end()
	sent, err := b.stream().GetMsg(b.ctx(), 3)
	if err != nil {
		t.Fatal(err)
	}
	again := &nats.Msg{Subject: sent.Subject, Header: sent.Header, Data: sent.Data}
	undone := stream.Encode(ledger.Event{
		Key: ledger.Key{Kind: "coupon.send", BizID: "undone"}, Version: 1, Position: 1000, Type: ledger.EventEnqueued,
		RecordedAt: time.Now().Add(-time.Hour),
	}, nil, b.source(), 0)
	for _, m := range []*nats.Msg{again, undone} {
		if _, err := b.js.PublishMsg(b.ctx(), m); err != nil {
			t.Fatal(err)
		}
	}
	b.relay()
	b.enqueue("coupon.send", "later-", 10)
	b.awaitPublished()
	b.await("the mark has all messages", func() (has bool) {
		err := b.pool.QueryRow(b.ctx(), `
			select (c.mark->>'stream_accounted')::bigint = (c.mark->>'stream_seq')::bigint
			  from taskledger.cursor c where c.reader = 'relay' order by c.n desc limit 1`).Scan(&has)
		if err != nil {
			t.Fatal(err)
		}
		return has
	})
}

// More messages up to the mark than a session reads have waited for the feed's audit. Those that a killed relay left
// behind the mark are found nevertheless. Not parallel: the setting is of the whole process.
func TestKilledBehindManyUnaccounted(t *testing.T) {
	t.Cleanup(outbox.SetMaxInspected(20))
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "order-", 100)
	b.awaitPublished()
	r.end()
	b.enqueue("later.send", "order-", 10)
	b.runKilled(outbox.FaultPublished, 1)
	if n := b.state().Msgs; n != 110 {
		t.Fatalf("%d messages, want 110: the killed relay left none", n)
	}
	ledgertest.ExecAsOwner(t, b.pool, `
		update taskledger.cursor set mark = jsonb_set(mark::jsonb, '{stream_accounted}', '0')::json
		 where reader = 'relay'`)
	b.relay()
	b.awaitPublished()
	b.checkOnce()
}

// Messages of a killed relay that are older than the duplicate window are published again.
func TestStoredBeforeTheWindow(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "first-", 1)
	b.awaitPublished()
	r.end()
	const window = 100 * time.Millisecond
	b.editStream(func(c *jetstream.StreamConfig) { c.Duplicates = window })
	b.enqueue("coupon.send", "order-", 10)
	b.runKilled(outbox.FaultPublished, 1)
	b.await("the messages are old", func() bool {
		info := b.stream().CachedInfo()
		return info.State.LastSeq == 11 && info.TimeStamp.Sub(info.State.LastTime) > window
	})
	b.relay()
	b.awaitPublished()
	if n := len(b.check()); n != 21 {
		t.Errorf("%d messages, want 21: ten events twice", n)
	}
}

// A relay process is stopped when it is about to send a page, and continues when another relay has sent it.
func TestFrozenRelaySendsNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("coupon.send", "order-", 300)
	frozen := b.freezeRelay(outbox.FaultSend)
	second := b.relay()
	b.awaitPublished()
	second.end()
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.enqueue("later.send", "order-", 1)
	b.awaitPublished() // by the process
	b.checkOnce()
}

// A relay that begins on a nearly full stream accounts for what it finds there before it makes room: if it is killed
// then, the next one does not publish the removed messages again.
func TestKilledBesideANearlyFullStream(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallStream)
	b.awaitWorkers("coupon.send")
	b.enqueue("coupon.send", "order-", 1)
	b.awaitPublished()
	r.end()
	const tasks = 100
	b.enqueueLater("later", tasks, 1300)
	b.runKilled(outbox.FaultPublished, 1, relaySmall+"=yes")
	if s := b.state(); s.LastSeq != tasks+1 || !b.status().Stream.NearlyFull {
		t.Fatalf("the test proves nothing: %+v", s)
	}
	b.runKilled(outbox.FaultPage, 1, relaySmall+"=yes")
	b.relay(smallStream)
	b.enqueue("coupon.send", "new-", 1)
	b.awaitPublished()
	if s := b.state(); s.LastSeq != tasks+2 {
		t.Errorf("%d messages were stored, want %d", s.LastSeq, tasks+2)
	}
}

// A page that is larger than the stream goes in parts, whose messages no worker needs. Each session makes room by
// removing a part, and publishes the next one; none is published again.
func TestPageLargerThanTheStream(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallStream)
	b.awaitWorkers("coupon.send")
	b.enqueue("coupon.send", "order-", 1)
	b.awaitPublished()
	r.end()
	const tasks = 543
	b.enqueueLater("later", tasks, 900)
	b.relay(smallStream)
	b.awaitPublished()
	if s := b.state(); s.LastSeq != tasks+1 {
		t.Errorf("%d messages were stored, want %d", s.LastSeq, tasks+1)
	}
}
