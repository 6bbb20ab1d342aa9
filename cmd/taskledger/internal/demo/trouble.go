package demo

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

//go:embed sql/waiting.sql
var waitingSQL string

// trouble is one thing that goes wrong.
type trouble struct {
	name string
	at   float64 // share of the orders that are placed when it begins
	make func(ctx context.Context, d *demo) error
}

// troubles is the script. Each begins when the one before has settled: when every order placed
// up to then has its coupon.
var troubles = []trouble{
	{"a worker is killed in mid-handler", 0.06, func(ctx context.Context, d *demo) error {
		return d.replaceChild(ctx, "worker", 0, faultVariable+"="+faultHandler+":3")
	}},
	{"a worker is killed between commit and ack", 0.25, func(ctx context.Context, d *demo) error {
		return d.replaceChild(ctx, "worker", 1, faultVariable+"="+faultCommitted+":3")
	}},
	{"the relay is killed between publish and cursor", 0.36, func(ctx context.Context, d *demo) error {
		return d.replaceChild(ctx, "relay", 0, faultVariable+"="+outbox.FaultPublished+":3")
	}},
	{"50 messages are published twice", 0.46, func(ctx context.Context, d *demo) error { return d.publishTwice(ctx, 50) }},
	{"20 deliveries are stolen and given back", 0.50, func(ctx context.Context, d *demo) error { return d.stealDeliveries(ctx, 20) }},
	{"a worker is frozen in mid-handler and wakes as a zombie", 0.54, func(ctx context.Context, d *demo) error { return d.freezeWorker(ctx) }},
	{"JetStream is stopped, its store removed, and started again", 0.80, func(ctx context.Context, d *demo) error { return d.wipeStream(ctx) }},
}

// interval is when a trouble was making itself felt.
type interval struct{ begin, end time.Time }

// calendar keeps the troubles for the latency figures and the view.
type calendar struct {
	mu   sync.Mutex
	now  string
	past []interval
	log  []string
}

func (c *calendar) begin(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = name
	return time.Now()
}

// end notes that a trouble is over; one without a name only counts for the figures.
func (c *calendar) end(name string, begin time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = ""
	c.past = append(c.past, interval{begin, time.Now()})
	if name == "" {
		return
	}
	c.log = append(c.log, fmt.Sprintf("%s (settled after %s)", name, time.Since(begin).Round(100*time.Millisecond)))
}

// arrays returns the begins and the ends as array literals.
func (c *calendar) arrays() (begins, ends string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b, e pgarray.Builder
	for _, i := range c.past {
		b.AddOptionalTime(i.begin)
		e.AddOptionalTime(i.end)
	}
	return b.String(), e.String()
}

// makeTrouble plays the script.
func (d *demo) makeTrouble(ctx context.Context) error {
	for _, t := range troubles {
		for float64(d.shop.placed.Load()) < t.at*float64(d.shop.orders) {
			if err := loop.Sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		begin := d.calendar.begin(t.name)
		if err := t.make(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := d.settle(ctx); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		d.calendar.end(t.name, begin)
	}
	return nil
}

// settle waits until every order placed up to now has its coupon, and those of the next moment:
// a trouble may only show in what comes after it.
func (d *demo) settle(ctx context.Context) error {
	if err := loop.Sleep(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	until := time.Now().UTC().Format(time.RFC3339Nano)
	deadline := time.Now().Add(settleTimeout)
	for {
		var waiting int
		if err := d.db.QueryRow(ctx, waitingSQL, until).Scan(&waiting); err != nil {
			return err
		}
		if waiting == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d orders still wait for their coupon after %s", waiting, settleTimeout)
		}
		if err := loop.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// replaceChild starts a child that will kill itself, waits for that, and starts a healthy one.
// The one it replaces is asked to stop first.
func (d *demo) replaceChild(ctx context.Context, role string, i int, armed string) error {
	slot := &d.workers[i]
	if role == "relay" {
		slot = &d.relay
	}
	_ = (*slot).stdin.Close()
	doomed, err := d.children.start(ctx, role, (*slot).name, armed)
	if err != nil {
		return err
	}
	select {
	case <-doomed.done:
	case <-time.After(settleTimeout):
		return fmt.Errorf("%s did not come to its crash point", doomed.name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !doomed.killed {
		return fmt.Errorf("%s ended, but not by SIGKILL", doomed.name)
	}
	*slot, err = d.children.start(ctx, role, doomed.name)
	return err
}

// publishTwice publishes copies of the last messages, as a second relay would.
func (d *demo) publishTwice(ctx context.Context, n int) error {
	js, s, err := d.stream(ctx)
	if err != nil {
		return err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	last := info.State.LastSeq
	for seq := last - min(uint64(n), last) + 1; seq <= last; seq++ {
		message, err := s.GetMsg(ctx, seq)
		if err != nil {
			return err
		}
		message.Header.Del(nats.MsgIdHdr)
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: message.Subject, Header: message.Header, Data: message.Data}); err != nil {
			return err
		}
	}
	return nil
}

// stealDeliveries takes deliveries that were meant for the workers, and gives them back.
func (d *demo) stealDeliveries(ctx context.Context, n int) error {
	_, s, err := d.stream(ctx)
	if err != nil {
		return err
	}
	consumer, err := s.Consumer(ctx, stream.Durable(couponKind.Name(), ledger.AllShards))
	if err != nil {
		return err
	}
	stolen := 0
	for stolen < n && ctx.Err() == nil {
		batch, err := consumer.Fetch(n-stolen, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for message := range batch.Messages() {
			stolen++
			if err := message.Nak(); err != nil {
				return err
			}
		}
		if d.shop.placed.Load() == int64(d.shop.orders) {
			break // no more deliveries to come
		}
	}
	return nil
}

// freezeWorker replaces a worker by one that stops itself in mid-handler, and wakes it when its
// claim has run out.
func (d *demo) freezeWorker(ctx context.Context) error {
	if !canFreeze {
		return nil
	}
	_ = d.workers[0].stdin.Close()
	zombie, err := d.children.start(ctx, "worker", d.workers[0].name, freezeVariable+"=3")
	if err != nil {
		return err
	}
	d.workers[0] = zombie
	select {
	case <-zombie.frozen:
	case <-time.After(settleTimeout):
		return fmt.Errorf("%s did not freeze", zombie.name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := d.settle(ctx); err != nil { // the other worker takes over
		return err
	}
	zombie.thaw()
	return nil
}

// wipeStream takes JetStream away with all it has stored.
func (d *demo) wipeStream(ctx context.Context) error {
	d.nats.Stop()
	if err := d.nats.Wipe(); err != nil {
		return err
	}
	if err := loop.Sleep(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	d.wipes.Add(1)
	return d.nats.Restart()
}

func (d *demo) stream(ctx context.Context) (jetstream.JetStream, jetstream.Stream, error) {
	js, err := jetstream.New(d.nc)
	if err != nil {
		return nil, nil, err
	}
	s, err := js.Stream(ctx, stream.Name)
	return js, s, err
}
