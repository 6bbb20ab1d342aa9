package watermill_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/watermill/internal/watermilltest"
)

// eventBundle is a kit with additions for the tests of subscribers.
type eventBundle struct{ *watermilltest.Kit }

// newEventBundle returns an eventBundle without a relay, and so without a stream.
func newEventBundle(t testing.TB) *eventBundle { return &eventBundle{watermilltest.New(t)} }

// newStreamed returns an eventBundle whose relay publishes on the stream.
func newStreamed(t testing.TB) *eventBundle { return &eventBundle{watermilltest.Start(t)} }

// enqueue enqueues n tasks of a kind, with ids from "<prefix>0" on.
func (b *eventBundle) enqueue(kind ledger.Kind, prefix string, n int) {
	b.T.Helper()
	var entries []ledger.Entry
	for i := range n {
		key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprintf("%s%d", prefix, i))}
		entries = append(entries, ledger.Entry{Key: key, Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
	}
	if _, err := ledger.EnqueueMany(b.T.Context(), b.DB, entries); err != nil {
		b.T.Fatal(err)
	}
}

// append appends an event to a task.
func (b *eventBundle) append(key ledger.Key, expected ledger.Version, typ ledger.EventType) ledger.Event {
	b.T.Helper()
	request := ledger.AppendRequest{Key: key, Expected: expected, Type: typ, Actor: "test"}
	e, err := ledger.Append(b.T.Context(), b.DB, request)
	if err != nil {
		b.T.Fatal(err)
	}
	return e
}

func (b *eventBundle) stream() jetstream.Stream {
	b.T.Helper()
	s, err := b.JS.Stream(b.T.Context(), stream.Name)
	if err != nil {
		b.T.Fatal(err)
	}
	return s
}

// awaitAcknowledged waits until no consumer of a group has a message left.
func (b *eventBundle) awaitAcknowledged(group string) {
	b.T.Helper()
	b.Await(group+" has acknowledged everything", func() bool {
		found := 0
		consumers := b.stream().ListConsumers(b.T.Context())
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
func (b *eventBundle) subscriber(configure ...func(*watermill.EventSubscriberConfig)) *watermill.EventSubscriber {
	b.T.Helper()
	c := watermill.EventSubscriberConfig{
		NATS: b.NATS, Group: "g", AckWait: time.Second, NackDelay: time.Millisecond, Logger: b.Logger(),
	}
	for _, f := range configure {
		f(&c)
	}
	s, err := watermill.NewEventSubscriber(c)
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { _ = s.Close() })
	return s
}
