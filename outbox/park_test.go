package outbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

func (b *bundle) enqueueLarge(id string, bytes int) ledger.Enqueued {
	b.t.Helper()
	args := json.RawMessage(fmt.Sprintf("%q", strings.Repeat("x", bytes)))
	e, err := ledger.Enqueue(b.ctx(), b.pool, ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}, args, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// An event that NATS refuses is parked with the reason, and delays no other event.
func TestTooLargeForTheServer(t *testing.T) {
	t.Parallel()
	b := newBundleOn(t, ledgertest.Pool(t, ledgertest.App, "relay", "operator"), natsserver.Config{MaxPayload: 8 << 10})
	var parked atomic.Int64
	b.relay(func(c *outbox.Config) { c.Hooks = []outbox.Hook{&hookFuncs{parked: func(string) { parked.Add(1) }}} })
	b.enqueue("coupon.send", "before-", 100)
	large := b.enqueueLarge("large", 20<<10)
	b.enqueue("coupon.send", "after-", 100)
	b.awaitPublished()
	b.check()
	if reason := b.parked()[large.Position]; !strings.Contains(reason, "maximum payload") {
		t.Errorf("parked because of %q", reason)
	}
	if parked.Load() != 1 {
		t.Errorf("the hook was called for %d parked events, want 1", parked.Load())
	}
	s := b.status()
	if s.Parked != 1 || s.ParkedAt.IsZero() || !strings.Contains(s.ParkedReason, "maximum payload") {
		t.Errorf("status %+v", s)
	}
}

func TestTooLargeForTheStream(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallStream)
	b.enqueue("coupon.send", "before-", 10)
	large := b.enqueueLarge("large", 250<<10)
	b.enqueue("coupon.send", "after-", 10)
	b.awaitPublished()
	b.check()
	if reason := b.parked()[large.Position]; !strings.Contains(reason, "more than the stream may hold") {
		t.Errorf("parked because of %q", reason)
	}
}

// An event with an invalid trace context or tags is published without them.
func TestInvalidMetaIsPublished(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	_, err := b.pool.Exec(b.ctx(), `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data, meta)
		values (1, 0, 0, 'enqueued', 'coupon.send', 'a', '{"n":1}', '{"traceparent":5,"tracestate":[],"tags":{}}'),
		       (1, 0, 0, 'enqueued', 'coupon.send', 'b', '{"n":1}', '{"traceparent":"no trace"}')`)
	if err != nil {
		t.Fatal(err)
	}
	b.relay()
	b.awaitPublished()
	all := b.check()
	if len(all) != 2 {
		t.Fatalf("%d messages, want 2; parked: %v", len(all), b.parked())
	}
	for _, d := range all {
		if d.Traceparent != "" || string(d.Payload) != `{"n":1}` {
			t.Errorf("%s with traceparent %q and body %q", d.ID(), d.Traceparent, d.Payload)
		}
	}
}

// An event whose stored bytes are corrupt is parked, and delays no other event.
func TestCorruptEventIsParked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var position int64
	err := b.pool.QueryRow(b.ctx(), `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data, meta)
		values (1, 0, 0, 'enqueued', 'coupon.send', 'odd', '"?"', '{"encoding":"base64"}')
		returning position`).Scan(&position)
	if err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "after-", 10)
	b.relay()
	b.awaitPublished()
	b.check()
	if reason := b.parked()[ledger.Position(position)]; !strings.Contains(reason, "corrupt base64 payload") {
		t.Errorf("parked because of %q", reason)
	}
}

// Events that no subject can carry, which only the owner of the schema can insert, are parked and stop nothing.
func TestUnpublishableEventsAreParked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	owner := ledgertest.As(t, b.pool, ledgertest.Owner)
	odd := []string{"", "a..b", "bad kind", "*", "a.>", ".a", "a\r\nb", "ä"}
	var positions []ledger.Position
	for _, kind := range odd {
		var position int64
		err := owner.QueryRow(b.ctx(), `
			insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
			values (1, 0, 0, 'enqueued', $1, 'odd')
			returning position`, kind).Scan(&position)
		if err != nil {
			t.Fatal(err)
		}
		positions = append(positions, ledger.Position(position))
	}
	b.enqueue("coupon.send", "after-", 10)
	b.relay()
	b.awaitPublished()
	b.check()
	parked := b.parked()
	for i, position := range positions {
		if reason := parked[position]; !strings.Contains(reason, "invalid kind") {
			t.Errorf("kind %q: parked because of %q", odd[i], reason)
		}
	}
}
