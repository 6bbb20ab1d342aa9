package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// ghost returns a well-formed message of an event that the ledger does not have.
func ghost(source string) *nats.Msg { return ghostAt(source, time.Now()) }

func ghostAt(source string, recorded time.Time) *nats.Msg {
	e := ledger.Event{
		Key: ledger.Key{Kind: "coupon.send", BizID: "ghost"}, Version: 1, Position: 1,
		Type: ledger.EventEnqueued, RecordedAt: recorded,
	}
	return stream.Encode(e, nil, source)
}

func (b *bundle) source() string {
	b.t.Helper()
	var installation string
	err := b.pool.QueryRow(b.ctx(), `select value from taskledger.setting where name = 'installation'`).
		Scan(&installation)
	if err != nil {
		b.t.Fatal(err)
	}
	return stream.Source(installation)
}

func TestForeignWriter(t *testing.T) {
	tests := []struct {
		name    string
		message func(*bundle) *nats.Msg
		reason  string
	}{
		{
			name: "not-an-event",
			message: func(*bundle) *nats.Msg {
				return &nats.Msg{Subject: "ledger.1.enqueued.coupon.send", Data: []byte("hello")}
			},
			reason: "malformed",
		},
		{
			name:    "another-source",
			message: func(*bundle) *nats.Msg { return ghost(stream.Source("another")) },
			reason:  "source",
		},
		{
			name:    "an-unknown-event",
			message: func(b *bundle) *nats.Msg { return ghost(b.source()) },
			reason:  "no such event",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			r := b.relay()
			b.enqueue("coupon.send", "order-", 10)
			b.awaitPublished()
			ack, err := b.js.PublishMsg(b.ctx(), test.message(b))
			if err != nil {
				t.Fatal(err)
			}
			b.enqueue("coupon.send", "later-", 10)
			found := awaitError[*outbox.ForeignWriterError](t, r)
			if found.Seq != ack.Sequence || !strings.Contains(found.Reason, test.reason) {
				t.Errorf("refused with %v, want message %d and a reason with %q", found, ack.Sequence, test.reason)
			}
			if !strings.Contains(found.Error(), "taskledger rebuild stream") {
				t.Errorf("%v does not name the cure", found)
			}
			refusal := b.refusal("message " + fmt.Sprint(ack.Sequence))
			again := awaitError[*outbox.ForeignWriterError](t, b.relay())
			if again.Seq != ack.Sequence {
				t.Errorf("another relay refuses with %v", again)
			}
			if since := b.refusal("taskledger rebuild stream").NoteSince; !since.Equal(refusal.NoteSince) {
				t.Errorf("the relay refuses since %s, and after another one refused too since %s", refusal.NoteSince,
					since)
			}
			// The cure works.
			if err := b.js.DeleteStream(b.ctx(), stream.Name); err != nil {
				t.Fatal(err)
			}
			b.relay()
			b.awaitPublished()
			b.await("the generation is 2", func() bool { return b.generation() == 2 })
			b.awaitPublished()
			b.check()
			b.await("a relay works without a note", func() bool {
				s := b.status()
				return s.Relay != nil && s.Relay.Alive && !s.Relay.Refused && s.Relay.Note == "" && s.StreamError == ""
			})
		})
	}
}

// refusal returns the lease of a relay that refused, which the status must report with the reason.
func (b *bundle) refusal(why string) relays.LeaseStatus {
	b.t.Helper()
	r := b.status().Relay
	if r == nil || !r.Refused || r.Alive || r.NoteSince.IsZero() || !strings.Contains(r.Note, why) {
		b.t.Fatalf("the status does not report the refusal (%s): %+v", why, r)
	}
	return *r
}

// A copy of the database has the same installation id, and may have a usable cursor. The relay of the original
// recognizes the messages of the copy's new events as foreign.
func TestCopyOfTheDatabaseOnTheSameStream(t *testing.T) {
	t.Parallel()
	b := newBundleOn(t, ownPool(t), natsserver.Config{})
	r := b.relay()
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	r.end()

	clone := b.clone()
	copied := &bundle{t: t, pool: clone, server: b.server, dir: b.dir, nc: b.nc, js: b.js}
	cr := copied.relay()
	copied.enqueue("coupon.send", "copied-", 1)
	copied.awaitPublished()
	cr.end()

	b.enqueue("coupon.send", "later-", 1)
	found := awaitError[*outbox.ForeignWriterError](t, b.relay())
	b.refusal("copied-0")
	if !strings.HasPrefix(found.ID, "coupon.send/copied-0/1@") {
		t.Errorf("refused because of %q", found.ID)
	}
}

// ownPool returns a pool that may be closed before the test ends.
func ownPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), ledgertest.URL(t, ledgertest.App, "relay", "operator"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// clone copies the database and returns a pool on the copy. Copying requires that there are no connections, so
// it also replaces the bundle's pool.
func (b *bundle) clone() *pgxpool.Pool {
	b.t.Helper()
	config := b.pool.Config()
	b.pool.Close()
	name := config.ConnConfig.Database
	admin, err := pgx.ParseConfig(ledgertest.URLAs(b.t, config.ConnString(), ledgertest.Owner))
	if err != nil {
		b.t.Fatal(err)
	}
	admin.Database = "postgres"
	conn, err := pgx.ConnectConfig(b.ctx(), admin)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(b.ctx())
	// Those of earlier tests wait for a later one.
	const end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = $1"
	if _, err := conn.Exec(b.ctx(), end, name); err != nil {
		b.t.Fatal(err)
	}
	if _, err := conn.Exec(b.ctx(), "create database "+name+"_copy template "+name); err != nil {
		b.t.Fatal(err)
	}
	open := func(name string) *pgxpool.Pool {
		c := config.Copy()
		c.ConnConfig.Database = name
		pool, err := pgxpool.NewWithConfig(b.ctx(), c)
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(pool.Close)
		return pool
	}
	b.pool = open(name)
	return open(name + "_copy")
}

func TestStreamOfAnotherLedger(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	if _, err := stream.Ensure(b.ctx(), b.js, stream.Config{}, "another"); err != nil {
		t.Fatal(err)
	}
	found := awaitError[*outbox.ForeignStreamError](t, b.relay())
	b.refusal("belongs to the ledger another")
	if found.Found != "another" || !strings.Contains(found.Error(), "another NATS account") {
		t.Errorf("refused with %v", found)
	}
}

func TestRefusesACursorOfAnotherCluster(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay()
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	r.end()
	// After a dump and a restore, the rows have the origin of the old cluster.
	ledgertest.ExecAsOwner(t, b.pool, `update taskledger.cursor set origin = '1/1'`)
	// The status reports it before a relay runs: all events wait.
	s := b.status()
	if s.Waiting != 10 || !strings.Contains(s.CursorError, "comes from another database") {
		t.Errorf("before a relay: %d waiting, cursor error %q", s.Waiting, s.CursorError)
	}
	awaitError[*feed.OriginError](t, b.relay())
	b.refusal("comes from another database")
}

func TestRefusesADatabaseWithoutTheSchema(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ledgertest.ExecAsOwner(t, b.pool, `drop schema taskledger, taskledger_internal cascade`)
	r := b.relay()
	err := r.wait()
	r.err = nil
	if err == nil || !strings.Contains(err.Error(), "migrate") {
		t.Errorf("the relay ended with %v, want one that names the cure", err)
	}
}

// A relay does not use a stream with unsuitable settings until they are corrected.
func TestUnsuitableStream(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	config := jetstream.StreamConfig{
		Name: stream.Name, Subjects: []string{stream.AllSubjects}, Discard: jetstream.DiscardNew, MaxBytes: 1 << 20,
	}
	if _, err := b.js.CreateStream(b.ctx(), config); err != nil {
		t.Fatal(err)
	}
	b.enqueue("coupon.send", "order-", 10)
	failures := make(chan error, 100)
	b.relay(func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{RelayFailed: func(_ context.Context, err error) { failures <- err }}}
	})
	if err := <-failures; !strings.Contains(err.Error(), "refuses new messages") {
		t.Errorf("failed with %v", err)
	}
	config.Discard = jetstream.DiscardOld
	if _, err := b.js.UpdateStream(b.ctx(), config); err != nil {
		t.Fatal(err)
	}
	b.awaitPublished()
	b.check()
}

// Messages that make a task available have its args as body and its trace context; others have the event's data.
func TestBodies(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	key := ledger.Key{Kind: "coupon.send", BizID: "100% \"😀\"://1"}
	binary := ledger.Key{Kind: "coupon.send", BizID: "binary"}
	for k, e := range map[ledger.Key]ledger.Entry{
		key: {
			Key: key, Args: json.RawMessage(`{"b" : 1}`),
			Options: &ledger.EnqueueOptions{Meta: ledger.Meta{Traceparent: trace, Tracestate: "vendor=1"}},
		},
		binary: {
			Key: binary, Args: json.RawMessage("\x00\xff"),
			Options: &ledger.EnqueueOptions{Binary: true},
		},
	} {
		if _, err := ledger.EnqueueMany(b.ctx(), b.pool, []ledger.Entry{e}); err != nil {
			t.Fatal(err)
		}
		b.append(k, 1, ledger.EventStarted)
		b.append(k, 2, ledger.EventInterrupted)
		b.append(k, 3, ledger.EventReleased)
	}
	b.awaitPublished()
	want := map[ledger.Key]string{key: `{"b" : 1}`, binary: "\x00\xff"}
	for _, d := range b.check() {
		body := ""
		if d.Type.WakesWorkers() {
			body = want[d.Key]
		}
		if string(d.Payload) != body {
			t.Errorf("body of %s %s is %q, want %q", d.ID(), d.Type, d.Payload, body)
		}
		traced := [2]string{}
		if d.Key == key && d.Type.WakesWorkers() {
			traced = [2]string{trace, "vendor=1"}
		}
		if got := [2]string{d.Traceparent, d.Tracestate}; got != traced {
			t.Errorf("trace context of %s %s is %q, want %q", d.ID(), d.Type, got, traced)
		}
	}
}
