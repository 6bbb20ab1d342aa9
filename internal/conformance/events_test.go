package conformance_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/taskledger/taskledger/ledger"
	outboxwm "github.com/taskledger/taskledger/outbox/watermill"
)

// events is the Pub/Sub of publisher and event subscriber, of the events that a suite can count:
// one of each message.
func (b *bundle) events(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	p, err := outboxwm.NewPublisher(t.Context(), b.db, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := outboxwm.NewSubscriber(outboxwm.SubscriberConfig{
		NATS: b.connect(), Group: group, Types: []ledger.EventType{ledger.EventEnqueued},
		AckWait: time.Second, NackDelay: time.Millisecond, Logger: b.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() }) // the suite leaves some open
	return p, s
}

// eventFeatures is all that the suite knows but two things: ExactlyOnceDelivery would be untrue,
// and skip tests; and an event does not have the context of its publisher. Nothing is skipped.
func (b *bundle) eventFeatures() tests.Features {
	return tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true, NewSubscriberReceivesOldMessages: true,
		RestartServiceCommand: b.suiteRestarts(),
	}
}

// eventsOfOneGroup is what the suite wants where groups are not its subject. New to a topic is a
// subscriber with a group of its own.
func (b *bundle) eventsOfOneGroup(t *testing.T) (message.Publisher, message.Subscriber) {
	t.Helper()
	if strings.Contains(t.Name(), "/TestNewSubscriberReceivesOldMessages/") {
		return b.events(t, watermill.NewUUID())
	}
	return b.events(t, "test")
}

func TestWatermillEvents(t *testing.T) {
	b := newBundle(t)
	tests.TestPubSub(t, b.eventFeatures(), b.eventsOfOneGroup, b.events)
}
