package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// patience bounds what normally takes milliseconds.
const patience = 30 * time.Second

// bundle is a ledger, a JetStream, and the relays between them.
type bundle struct {
	t      testing.TB
	pool   *pgxpool.Pool
	dir    string
	server *natsserver.Server
	nc     *nats.Conn
	js     jetstream.JetStream
}

func newBundle(t testing.TB) *bundle {
	return newBundleOn(t, ledgertest.Pool(t, ledgertest.App, "relay", "operator"), natsserver.Config{})
}

func newBundleOn(t testing.TB, pool *pgxpool.Pool, config natsserver.Config) *bundle {
	t.Helper()
	b := &bundle{t: t, pool: pool, dir: t.TempDir()}
	config.Dir = b.dir
	server, err := natsserver.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	b.server = server
	b.nc, b.js = b.connect()
	return b
}

func (b *bundle) connect() (*nats.Conn, jetstream.JetStream) {
	b.t.Helper()
	nc, err := outbox.Connect(b.server.URL(), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectJitter(time.Millisecond, time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return nc, js
}

// running is a relay that runs.
type running struct {
	relay *outbox.Relay
	t     testing.TB
	stop  context.CancelFunc
	done  chan error
	once  sync.Once
	err   error
}

// relay starts a relay with short intervals, until the test ends.
func (b *bundle) relay(configure ...func(*outbox.Config)) *running {
	b.t.Helper()
	c := outbox.Config{
		DB: b.pool, NATS: b.nc, LeaseTTL: time.Second, CheckEvery: 50 * time.Millisecond, AckTimeout: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	}
	for _, f := range configure {
		f(&c)
	}
	r, err := outbox.New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	run := &running{t: b.t, relay: r, stop: stop, done: make(chan error, 1)}
	go func() { run.done <- r.Run(ctx) }()
	b.t.Cleanup(run.end)
	return run
}

// end stops the relay, which must end without an error.
func (r *running) end() {
	r.stop()
	if err := r.wait(); err != nil {
		r.t.Errorf("relay: %v", err)
	}
}

// wait returns the error of the relay's Run.
func (r *running) wait() error {
	r.once.Do(func() {
		select {
		case r.err = <-r.done:
		case <-time.After(patience):
			r.err = fmt.Errorf("it did not end within %s", patience)
		}
	})
	return r.err
}

// awaitError waits until the relay ends by itself, with an error of type E.
func awaitError[E error](t *testing.T, r *running) E {
	t.Helper()
	err := r.wait()
	r.err = nil // expected
	var want E
	if !errors.As(err, &want) {
		t.Fatalf("the relay ended with %v, want %T", err, want)
	}
	return want
}

func (b *bundle) ctx() context.Context { return b.t.Context() }

// enqueue enqueues n tasks of a kind, ids from "<prefix>0" on, in transactions of 500.
func (b *bundle) enqueue(kind ledger.Kind, prefix string, n int) {
	b.t.Helper()
	b.enqueueBatches(kind, prefix, n, 500)
}

func (b *bundle) enqueueBatches(kind ledger.Kind, prefix string, n, batch int) {
	b.t.Helper()
	b.enqueueSized(kind, prefix, n, batch, 0)
}

// enqueueSized enqueues tasks with so many more bytes of args.
func (b *bundle) enqueueSized(kind ledger.Kind, prefix string, n, batch, bytes int) {
	b.t.Helper()
	more := strings.Repeat("x", bytes)
	for from := 0; from < n; from += batch {
		var entries []ledger.Entry
		for i := from; i < min(n, from+batch); i++ {
			key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprintf("%s%d", prefix, i))}
			args := fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, more)
			entries = append(entries, ledger.Entry{Key: key, Args: json.RawMessage(args)})
		}
		if _, err := ledger.EnqueueMany(b.ctx(), b.pool, entries); err != nil {
			b.t.Fatal(err)
		}
	}
}

// append appends an event to a task.
func (b *bundle) append(key ledger.Key, expected ledger.Version, typ ledger.EventType) ledger.Event {
	b.t.Helper()
	request := ledger.AppendRequest{Key: key, Expected: expected, Type: typ, Actor: "test"}
	e, err := ledger.Append(b.ctx(), b.pool, request)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// awaitPublished waits until every committed event has been published.
func (b *bundle) awaitPublished() {
	b.t.Helper()
	b.await("the outbox is empty", func() bool {
		var waiting bool
		err := b.pool.QueryRow(b.ctx(), "select exists (select from taskledger.outbox)").Scan(&waiting)
		if err != nil {
			b.t.Fatal(err)
		}
		return !waiting
	})
}

// await waits for a condition.
func (b *bundle) await(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("after %s it does not hold that %s", patience, what)
		}
	}
}

func (b *bundle) stream() jetstream.Stream {
	b.t.Helper()
	s, err := b.js.Stream(b.ctx(), stream.Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bundle) state() jetstream.StreamState {
	b.t.Helper()
	return b.stream().CachedInfo().State
}

// generation returns that of the relay's newest cursor row, 0 if it has none.
func (b *bundle) generation() int {
	b.t.Helper()
	s, err := relays.ReadStatus(b.ctx(), b.pool, nil, outbox.StreamConfig{})
	if err != nil {
		b.t.Fatal(err)
	}
	return s.Generation
}

// delivery is a message of the stream.
type delivery struct {
	stream.Message
	seq    uint64
	header nats.Header
}

// deliveries reads the whole stream, in order.
func (b *bundle) deliveries() []delivery {
	b.t.Helper()
	s := b.stream()
	state := s.CachedInfo().State
	if state.Msgs == 0 {
		return nil
	}
	c, err := s.OrderedConsumer(b.ctx(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.t.Fatal(err)
	}
	it, err := c.Messages()
	if err != nil {
		b.t.Fatal(err)
	}
	defer it.Stop()
	var all []delivery
	for uint64(len(all)) < state.Msgs {
		msg, err := it.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			b.t.Fatal(err)
		}
		m, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil {
			b.t.Fatal(err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, delivery{Message: m, seq: meta.Sequence.Stream, header: msg.Headers()})
	}
	return all
}

// check checks what must always hold. Each committed event is on the stream at least once, or parked, and no
// other event is. The events of a task appear for the first time in their order.
func (b *bundle) check() []delivery {
	b.t.Helper()
	all := b.deliveries()
	onStream := make(map[string]bool)
	last := make(map[ledger.Key]ledger.Version)
	for _, d := range all {
		if onStream[d.ID()] {
			continue
		}
		onStream[d.ID()] = true
		if d.Version <= last[d.Key] {
			b.t.Errorf("%s appears after version %d", d.ID(), last[d.Key])
		}
		last[d.Key] = d.Version
	}
	parked := b.parked()
	events := 0
	for e, err := range ledger.Read(b.ctx(), b.pool, 0, 1<<30) {
		if err != nil {
			b.t.Fatal(err)
		}
		events++
		if _, is := parked[e.Position]; is == onStream[e.ID()] {
			b.t.Errorf("%s (position %d): on the stream %v, parked %v", e.ID(), e.Position, onStream[e.ID()], is)
		}
	}
	if want := events - len(parked); len(onStream) != want {
		b.t.Errorf("%d different events on the stream, want %d", len(onStream), want)
	}
	return all
}

// parked returns the reasons of parked events.
func (b *bundle) parked() map[ledger.Position]string {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx(), `select position, reason from taskledger_internal.parked_events`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	parked := make(map[ledger.Position]string)
	for rows.Next() {
		var position int64
		var reason string
		if err := rows.Scan(&position, &reason); err != nil {
			b.t.Fatal(err)
		}
		parked[ledger.Position(position)] = reason
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return parked
}

// awaitNote waits until the lease of the relay has a note with a text.
func (b *bundle) awaitNote(text string) {
	b.t.Helper()
	b.await("the note has: "+text, func() bool {
		r := b.status().Relay
		return r != nil && strings.Contains(r.Note, text)
	})
}

func (b *bundle) status() relays.Status {
	b.t.Helper()
	s, err := relays.ReadStatus(b.ctx(), b.pool, b.js, outbox.StreamConfig{})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// smallPages has a relay read 100 events at a time.
func smallPages(c *outbox.Config) { c.SetPageSize(100) }

// smallStream holds some 300 messages.
func smallStream(c *outbox.Config) { c.Stream.MaxBytes = 200 << 10 }
