package outbox_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var lossCount = flag.Int("losses", 3, "number of losses of the stream in TestOrderAcrossLosses")

// The stream is lost again and again, also while events are published again, beside producers and workers. A
// subscriber that reads each stream from its beginning receives the events of each task in their order.
func TestOrderAcrossLosses(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages)
	ctx, stop := context.WithCancel(b.ctx())
	defer stop()
	o := &orderReader{b: b, versions: make(map[ledger.Key]map[ledger.Version]bool)}
	read := make(chan error, 1)
	go func() { read <- o.run(ctx) }()
	for round := range *lossCount {
		for part := range 4 {
			prefix := fmt.Sprintf("%d-%d-", round, part)
			b.enqueue("coupon.send", prefix, 200)
			b.appendNext("coupon.send", prefix, 0, 200, 1, ledger.EventStarted)
			b.appendNext("coupon.send", prefix, 0, 100, 2, ledger.EventFailed)
			b.appendNext("coupon.send", prefix, 0, 80, 3, ledger.EventReleased)
		}
		b.await("the stream is deleted", func() bool { return b.js.DeleteStream(b.ctx(), stream.Name) == nil })
		for part := range 4 { // new events of tasks whose earlier ones are being published again
			prefix := fmt.Sprintf("%d-%d-", round, part)
			b.appendNext("coupon.send", prefix, 0, 60, 4, ledger.EventStarted)
			time.Sleep(time.Duration(round%5) * 20 * time.Millisecond) // the next loss comes later in the repair
			b.appendNext("coupon.send", prefix, 100+20*part, 200, 2, ledger.EventSucceeded)
			b.appendNext("coupon.send", prefix, 0, 40, 5, ledger.EventSucceeded)
		}
	}
	b.awaitPublished()
	last := b.state().LastSeq
	b.await("the subscriber has received everything", func() bool { return o.reached.Load() >= last })
	stop()
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	for _, text := range o.faults {
		t.Error(text)
	}
	if len(o.versions) != *lossCount*800 {
		t.Errorf("%d tasks were received, want %d", len(o.versions), *lossCount*800)
	}
	b.check()
	t.Logf("generation %d, %d events", b.generation(), last)
}

// orderReader receives all events, from the beginning of each new stream.
type orderReader struct {
	b        *bundle
	versions map[ledger.Key]map[ledger.Version]bool // received
	faults   []string
	reached  atomic.Uint64 // sequence of the present stream
}

// run receives events until ctx is done. A stream that is lost ends the reading of it.
func (o *orderReader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		s, err := o.b.js.Stream(ctx, stream.Name)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		o.reached.Store(0)
		c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Minute,
		})
		for err == nil && ctx.Err() == nil {
			err = o.fetch(c)
		}
		if errors.Is(err, stream.ErrMalformed) {
			return err
		}
	}
	return nil
}

func (o *orderReader) fetch(c jetstream.Consumer) error {
	batch, err := c.Fetch(500, jetstream.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		m, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil {
			return err
		}
		o.note(m)
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		o.reached.Store(meta.Sequence.Stream)
	}
	if err := batch.Error(); err != nil {
		return err
	}
	_, err = c.Info(o.b.ctx()) // the stream still exists
	return err
}

// note notes an event, and a fault if a later event of its task came before.
func (o *orderReader) note(m stream.Message) {
	seen := o.versions[m.Key]
	if seen == nil {
		seen = make(map[ledger.Version]bool)
		o.versions[m.Key] = seen
	}
	if seen[m.Version] {
		return
	}
	seen[m.Version] = true
	for v := range seen {
		if v > m.Version {
			o.faults = append(o.faults, fmt.Sprintf("version %d of %s came after version %d", m.Version, m.Key, v))
			return
		}
	}
}

// appendNext appends an event behind a version of each of some tasks.
func (b *bundle) appendNext(
	kind ledger.Kind, prefix string, from, to int, after ledger.Version, typ ledger.EventType,
) {
	b.t.Helper()
	var requests []ledger.AppendRequest
	for i := from; i < to; i++ {
		key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprintf("%s%d", prefix, i))}
		requests = append(requests, ledger.AppendRequest{Key: key, Expected: after, Type: typ, Actor: "test"})
	}
	for _, r := range ledger.AppendEach(b.ctx(), b.pool, requests) {
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
	}
}
