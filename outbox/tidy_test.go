package outbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// After a backlog was worked off, and without a new event, the status has neither a nearly full stream nor withheld
// kinds.
func TestStatusAfterABacklog(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, smallStream)
	var kinds []ledger.Kind
	consumers := make(map[ledger.Kind]jetstream.Consumer)
	for i := range 6 {
		kind := ledger.Kind(fmt.Sprintf("kind.k%d", i))
		kinds = append(kinds, kind)
		consumers[kind] = b.awaitWorkers(kind)
	}
	for _, kind := range kinds {
		b.enqueue(kind, "order-", 300)
	}
	b.awaitPublished()
	if s := b.status(); len(s.Withheld) == 0 {
		t.Fatal("no kind is withheld: the test proves nothing")
	}
	for _, kind := range kinds {
		b.take(consumers[kind], 300)
	}
	b.await("no kind to be withheld", func() bool { return len(b.status().Withheld) == 0 })
}

// The last page has filled the stream with messages that no worker needs. The relay removes them without another event,
// so that the condition of a nearly full stream ends.
func TestIdleStreamIsNotNearlyFull(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallStream)
	b.awaitWorkers("coupon.send")
	b.enqueueLater("first", 20, 0)
	b.awaitPublished()
	state := b.state()
	b.enqueueLater("order", int(200<<10*9/10*state.Msgs/state.Bytes)-20, 0)
	b.awaitPublished()
	if n := b.state().LastSeq; n < 200 {
		t.Fatalf("%d messages were published: the test proves nothing", n)
	}
	b.await("room in the stream", func() bool { return !b.status().Stream.NearlyFull })
}

// enqueueLater enqueues tasks in one transaction that are due in an hour, for which no worker waits, with args of so
// many bytes.
func (b *bundle) enqueueLater(prefix string, n, bytes int) {
	b.t.Helper()
	args := json.RawMessage(fmt.Sprintf("%q", strings.Repeat("x", bytes)))
	later := &ledger.EnqueueOptions{RunAt: time.Now().Add(time.Hour)}
	var entries []ledger.Entry
	for i := range n {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("%s-%d", prefix, i))}
		entries = append(entries, ledger.Entry{Key: key, Args: args, Options: later})
	}
	if _, err := ledger.EnqueueMany(b.ctx(), b.pool, entries); err != nil {
		b.t.Fatal(err)
	}
}

// A stream that has reached a limit of messages blocks the relay with its own cure, not with that of a full disk.
func TestStreamWithALimitOfMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	b.awaitWorkers("coupon.send")
	info := b.stream().CachedInfo()
	info.Config.MaxMsgs = 5
	if _, err := b.js.UpdateStream(b.ctx(), info.Config); err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "order-", 20)
	b.await("the cure", func() bool {
		s := b.status()
		return s.Relay != nil && strings.Contains(s.Relay.Note, "nats stream edit "+stream.Name+" --max-msgs=-1")
	})
	if s := b.status(); s.Relay.IsStoreFailure || s.Relay.Refused {
		t.Errorf("%+v", s.Relay)
	}
	info.Config.MaxMsgs = -1
	if _, err := b.js.UpdateStream(b.ctx(), info.Config); err != nil {
		t.Fatal(err)
	}
	b.awaitPublished()
	b.await("no note", func() bool { return b.status().Relay.Note == "" })
}

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
