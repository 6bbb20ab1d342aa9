package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/subscribers"
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

// An event that NATS would refuse is parked with the reason, and delays no other event.
func TestTooLargeForTheServer(t *testing.T) {
	t.Parallel()
	b := newBundleOn(t, ledgertest.Pool(t, ledgertest.App, "relay", "operator"), natsserver.Config{MaxPayload: 8 << 10})
	var parked atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{EventParked: func(context.Context, string) { parked.Add(1) }}}
	})
	b.enqueue("coupon.send", "before-", 100)
	large := b.enqueueLarge("large", 20<<10)
	b.enqueue("coupon.send", "after-", 100)
	b.awaitPublished()
	b.check()
	if reason := b.parked()[large.Position]; !strings.Contains(reason, "more than the server takes") {
		t.Errorf("parked because of %q", reason)
	}
	if parked.Load() != 1 {
		t.Errorf("the hook was called for %d parked events, want 1", parked.Load())
	}
	s := b.status()
	if s.Parked != 1 || s.ParkedAt.IsZero() || !strings.Contains(s.ParkedReason, "more than the server takes") {
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

// enlarge lets the stream hold large messages.
func (b *bundle) enlarge() {
	b.t.Helper()
	b.editStream(func(c *jetstream.StreamConfig) { c.MaxBytes = 10 << 20 })
}

// operations returns the actions and actors of the acts on record, and how many of them have succeeded.
func (b *bundle) operations() (acts []string, succeeded int) {
	b.t.Helper()
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, 10_000) {
		if err != nil {
			b.t.Fatal(err)
		}
		switch {
		case e.Kind != "taskledger.operation":
		case e.Version == 1:
			action, _, _ := strings.Cut(string(e.BizID), "/")
			acts = append(acts, fmt.Sprintf("%s by %s: %s", action, e.Actor, e.Data))
		case e.Type == ledger.EventSucceeded:
			succeeded++
		}
	}
	return acts, succeeded
}

// An operator has a parked event published when its cause is gone. While it is not, the event is parked again. A relay
// that is killed meanwhile leaves nothing out.
func TestParkedEventsAreRetried(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallStream)
	large := []ledger.Enqueued{b.enqueueLarge("large-1", 250<<10), b.enqueueLarge("large-2", 250<<10)}
	b.awaitPublished()
	all, err := relays.ReadParked(b.ctx(), b.pool, 0, 10)
	if err != nil || len(all) != 2 || all[0].Key != large[0].Key || all[0].Position != large[0].Position ||
		all[0].Version != 1 || all[0].ParkedAt.IsZero() || all[0].Reason == "" {
		t.Fatalf("parked: %+v, %v", all, err)
	}
	positions := []ledger.Position{large[1].Position, large[0].Position}
	retry := func() {
		t.Helper()
		if err := relays.RetryParked(b.ctx(), b.pool, positions, "alice", "max bytes raised"); err != nil {
			t.Fatal(err)
		}
	}
	retry()
	b.await("the events are parked again", func() bool { return len(b.parked()) == 2 })
	b.awaitPublished()
	b.enlarge()
	r.end()
	retry()
	b.runKilled(fault.RelayPage, 1)
	b.runKilled(fault.RelayPublished, 1)
	b.relay()
	b.awaitPublished()
	sizes := make(map[ledger.Key]int)
	for _, d := range b.check() {
		sizes[d.Key] = len(d.Payload)
	}
	for _, e := range large {
		if sizes[e.Key] < 250<<10 {
			t.Errorf("%s was published with %d bytes", e.Key, sizes[e.Key])
		}
	}
	want := fmt.Sprintf("parked.retry by alice: "+
		`{"action":"parked.retry","reason":"max bytes raised","positions":[%d,%d]}`,
		large[0].Position, large[1].Position)
	if acts, succeeded := b.operations(); len(acts) != 2 || acts[1] != want || succeeded != 2 {
		t.Errorf("on record: %q, of which %d succeeded; want twice %q", acts, succeeded, want)
	}
}

// An operator removes events from the list of parked ones, all that the call names or none.
func TestParkedEventsAreDiscarded(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallStream)
	large := b.enqueueLarge("large", 250<<10)
	b.awaitPublished()
	pool := ledgertest.As(t, b.pool, "operator")
	err := relays.DiscardParked(b.ctx(), pool, []ledger.Position{large.Position, 999}, "alice", "")
	if !errors.Is(err, subscribers.ErrNotParked) || len(b.parked()) != 1 {
		t.Errorf("one of two is not parked: %v, parked: %v", err, b.parked())
	}
	if err := relays.DiscardParked(b.ctx(), pool, []ledger.Position{large.Position}, "alice", "no need"); err != nil {
		t.Fatal(err)
	}
	b.awaitPublished()
	for _, d := range b.deliveries() {
		if d.Key == large.Key {
			t.Errorf("%s was published", d.ID())
		}
	}
	acts, _ := b.operations()
	if len(acts) != 1 || !strings.Contains(acts[0], "parked.discard by alice") || len(b.parked()) != 0 {
		t.Errorf("on record: %q; parked: %v", acts, b.parked())
	}
}

// A discarded event is not parked again when the relay reads it again, and cannot be retried.
func TestDiscardedEventsStayDiscarded(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallStream)
	large := b.enqueueLarge("large", 250<<10)
	var odd int64
	err := ledgertest.As(t, b.pool, ledgertest.Owner).QueryRow(b.ctx(), `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		values (1, 0, 0, 'enqueued', 'a..b', 'odd')
		returning position`).Scan(&odd)
	if err != nil {
		t.Fatal(err)
	}
	b.await("both events are parked", func() bool { return len(b.parked()) == 2 })
	positions := []ledger.Position{large.Position, ledger.Position(odd)}
	pool := ledgertest.As(t, b.pool, "operator")
	if err := relays.RetryParked(b.ctx(), pool, positions, "alice", ""); err != nil {
		t.Fatal(err)
	}
	b.await("both events are parked again", func() bool { return len(b.parked()) == 2 })
	if err := relays.DiscardParked(b.ctx(), pool, positions, "alice", ""); err != nil {
		t.Fatal(err)
	}
	if err := relays.RetryParked(b.ctx(), pool, positions, "alice", ""); !errors.Is(err, subscribers.ErrNotParked) {
		t.Errorf("retry of discarded events: %v, want ErrNotParked", err)
	}
	b.awaitPublished()
	r.end()
	b.relay(smallStream)
	if err := relays.RebuildStream(b.ctx(), b.pool, b.js, nil); err != nil {
		t.Fatal(err)
	}
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.enqueue("coupon.send", "after-", 1)
	b.awaitPublished()
	if s := b.status(); len(b.parked()) != 0 || s.Parked != 0 {
		t.Errorf("parked: %v, status %d", b.parked(), s.Parked)
	}
}
