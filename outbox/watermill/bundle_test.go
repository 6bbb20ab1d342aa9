package watermill_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/outbox/watermill"
)

// patience bounds what normally takes milliseconds.
const patience = 30 * time.Second

// bundle is a ledger and a JetStream.
type bundle struct {
	t    testing.TB
	pool *pgxpool.Pool
	nc   *nats.Conn
	js   jetstream.JetStream
}

func newBundle(t testing.TB) *bundle {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	nc, err := outbox.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{t: t, pool: ledgertest.Pool(t), nc: nc, js: js}
}

// newStreamed returns a bundle whose ledger a relay publishes on the stream.
func newStreamed(t testing.TB) *bundle {
	t.Helper()
	b := newBundle(t)
	relay, err := outbox.New(outbox.Config{DB: b.pool, NATS: b.nc, Logger: b.logger()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	b.await("the stream exists", func() bool {
		_, err := b.js.Stream(b.ctx(), stream.Name)
		return err == nil
	})
	return b
}

func (b *bundle) ctx() context.Context { return b.t.Context() }

func (b *bundle) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b.t.Output(), nil)) }

// await waits for a condition.
func (b *bundle) await(condition string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("after %s it does not hold that %s", patience, condition)
		}
	}
}

// enqueue enqueues n tasks of a kind, with ids from "<prefix>0" on.
func (b *bundle) enqueue(kind ledger.Kind, prefix string, n int) {
	b.t.Helper()
	var entries []ledger.Entry
	for i := range n {
		key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprintf("%s%d", prefix, i))}
		entries = append(entries, ledger.Entry{Key: key, Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
	}
	if _, err := ledger.EnqueueMany(b.ctx(), b.pool, entries); err != nil {
		b.t.Fatal(err)
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

// awaitPublished waits until every committed event is on the stream.
func (b *bundle) awaitPublished() {
	b.t.Helper()
	b.await("the outbox is empty", func() bool {
		var waiting bool
		err := b.pool.QueryRow(b.ctx(), `select exists (select from taskledger.outbox)`).Scan(&waiting)
		if err != nil {
			b.t.Fatal(err)
		}
		return !waiting
	})
}

func (b *bundle) stream() jetstream.Stream {
	b.t.Helper()
	s, err := b.js.Stream(b.ctx(), stream.Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// awaitAcknowledged waits until no consumer of a group has a message left.
func (b *bundle) awaitAcknowledged(group string) {
	b.t.Helper()
	b.await(group+" has acknowledged everything", func() bool {
		found := 0
		consumers := b.stream().ListConsumers(b.ctx())
		for c := range consumers.Info() {
			if strings.HasPrefix(c.Name, group+"=") {
				found++
				if c.NumPending > 0 || c.NumAckPending > 0 {
					return false
				}
			}
		}
		return consumers.Err() == nil && found > 0
	})
}

// subscriber returns a subscriber of group g that redelivers quickly.
func (b *bundle) subscriber(configure ...func(*watermill.SubscriberConfig)) *watermill.Subscriber {
	b.t.Helper()
	c := watermill.SubscriberConfig{
		NATS: b.nc, Group: "g", AckWait: time.Second, NackDelay: time.Millisecond, Logger: b.logger(),
	}
	for _, f := range configure {
		f(&c)
	}
	s, err := watermill.NewSubscriber(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (b *bundle) subscribe(s *watermill.Subscriber, topic string) <-chan *message.Message {
	b.t.Helper()
	messages, err := s.Subscribe(b.ctx(), topic)
	if err != nil {
		b.t.Fatal(err)
	}
	return messages
}

// receive returns the next message.
func (b *bundle) receive(messages <-chan *message.Message) *message.Message {
	b.t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			b.t.Fatal("the channel is closed")
		}
		return m
	case <-time.After(patience):
		b.t.Fatal("no message was delivered")
	}
	return nil
}
