package demo

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/stream"
)

//go:embed sql/waiting.sql
var waitingSQL string

// trouble is one fault that the demo injects.
type trouble struct {
	name string
	at   float64 // share of the orders that are placed before it begins
	make func(ctx context.Context, d *demo) error
}

// troubles are injected in this order. Each begins after the demo has recovered from the previous one: every order
// placed until then has a coupon.
var troubles = []trouble{
	{"a worker is killed while its handler runs", 0.06, func(ctx context.Context, d *demo) error {
		return d.replaceChild(ctx, "worker", 0, faultVariable+"="+faultHandler+":3")
	}},
	{"a worker is killed between commit and report", 0.25, func(ctx context.Context, d *demo) error {
		return d.replaceChild(ctx, "worker", 1, faultVariable+"="+faultCommitted+":3")
	}},
	{"the relay is killed between publish and cursor", 0.36, func(ctx context.Context, d *demo) error {
		return d.replaceChild(ctx, "relay", 0, faultVariable+"="+fault.RelayPublished+":3")
	}},
	{"50 messages are published twice", 0.46, func(ctx context.Context, d *demo) error {
		return d.publishTwice(ctx, 50)
	}},
	{"a worker is frozen while its handler runs, and wakes as a zombie", 0.54,
		func(ctx context.Context, d *demo) error {
			return d.freezeWorker(ctx)
		}},
	{"JetStream is stopped, its store is removed, and it is restarted", 0.80, func(ctx context.Context, d *demo) error {
		return d.wipeStream(ctx)
	}},
}

// interval is the time between a trouble's begin and the recovery from it.
type interval struct{ begin, end time.Time }

// troubleLog records the troubles, for the latency figures and the view. It is safe for concurrent use.
type troubleLog struct {
	mu        sync.Mutex
	current   string     // guarded by mu, like the rest; empty: none
	intervals []interval // of the past
	lines     []string   // of named past troubles
}

func (l *troubleLog) begin(name string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = name
	return time.Now()
}

// end records that a trouble is over. A trouble without a name adds an interval but no line.
func (l *troubleLog) end(name string, begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = ""
	l.intervals = append(l.intervals, interval{begin, time.Now()})
	if name == "" {
		return
	}
	duration := time.Since(begin).Round(100 * time.Millisecond)
	l.lines = append(l.lines, fmt.Sprintf("%s (recovered after %s)", name, duration))
}

// status returns the name of the current trouble and the number of past ones.
func (l *troubleLog) status() (current string, past int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current, len(l.lines)
}

// list returns the past troubles, one line each.
func (l *troubleLog) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.lines...)
}

// arrays returns the begins and the ends as array literals.
func (l *troubleLog) arrays() (begins, ends string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b, e pgarray.Builder
	for _, i := range l.intervals {
		b.AddOptionalTime(i.begin)
		e.AddOptionalTime(i.end)
	}
	return b.String(), e.String()
}

// makeTrouble injects all troubles.
func (d *demo) makeTrouble(ctx context.Context) error {
	for _, t := range troubles {
		for float64(d.shop.placed.Load()) < t.at*float64(d.shop.orders) {
			if err := loop.Sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		begin := d.troubles.begin(t.name)
		if err := t.make(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := d.awaitRecovery(ctx); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		d.troubles.end(t.name, begin)
	}
	return nil
}

// awaitRecovery waits until every order that was placed by now, or is placed within the next 300 ms, has a coupon. A
// trouble may affect only later orders.
func (d *demo) awaitRecovery(ctx context.Context) error {
	if err := loop.Sleep(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	until := time.Now().UTC().Format(time.RFC3339Nano)
	deadline := time.Now().Add(recoveryTimeout)
	for {
		var waiting int
		if err := d.db.QueryRow(ctx, waitingSQL, until).Scan(&waiting); err != nil {
			return err
		}
		if waiting == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d orders still wait for their coupon after %s", waiting, recoveryTimeout)
		}
		if err := loop.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// replaceChild stops a child and starts one in its place that kills itself at a crash point. After
// that it starts a healthy one.
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
	case <-time.After(recoveryTimeout):
		return fmt.Errorf("%s did not reach its crash point in %s", doomed.name, recoveryTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !doomed.killed {
		return fmt.Errorf("%s ended otherwise than by SIGKILL", doomed.name)
	}
	*slot, err = d.children.start(ctx, role, doomed.name)
	return err
}

// publishTwice publishes copies of the last n messages, like a second relay.
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
		message.Header.Del(nats.ExpectedLastSeqHdr)
		again := &nats.Msg{Subject: message.Subject, Header: message.Header, Data: message.Data}
		if _, err := js.PublishMsg(ctx, again); err != nil {
			return err
		}
	}
	return nil
}

// freezeWorker replaces a worker with a worker that freezes while its handler runs. It wakes that worker after its
// claim has expired.
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
	case <-time.After(recoveryTimeout):
		return fmt.Errorf("%s did not freeze in %s", zombie.name, recoveryTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := d.awaitRecovery(ctx); err != nil { // the other worker takes over
		return err
	}
	zombie.thaw()
	return nil
}

// wipeStream stops JetStream, removes its store and restarts it.
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
	s, err := js.Stream(ctx, stream.PrefixOf(js.Conn()).Stream())
	return js, s, err
}
