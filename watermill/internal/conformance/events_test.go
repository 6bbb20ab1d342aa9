package conformance_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/taskledger/taskledger/ledger"
	ledgerwm "github.com/taskledger/taskledger/watermill"
)

// events is the Pub/Sub of publisher and event subscriber. It delivers the enqueued events only, one for
// each message, so that the suite can count them.
func (b *bundle) events(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	p, err := ledgerwm.NewPublisher(t.Context(), b.DB, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ledgerwm.NewEventSubscriber(ledgerwm.EventSubscriberConfig{
		NATS: b.Connect(), Group: group, Types: []ledger.EventType{ledger.EventEnqueued},
		AckWait: time.Second, NackDelay: time.Millisecond, Logger: b.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.T.Cleanup(func() { _ = s.Close() }) // the suite leaves some open
	return p, s
}

// eventFeatures claims all features of the suite but two. ExactlyOnceDelivery does not hold, and skips
// tests. ContextPreserved does not hold: an event does not have the context of its publisher. The suite's only
// skipped test is TestReconnect, for which we have our own.
func (b *bundle) eventFeatures() tests.Features {
	return tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true, NewSubscriberReceivesOldMessages: true,
	}
}

// eventsOfOneGroup is the Pub/Sub for tests that are not about groups. The test of new subscribers requires
// a new group for each.
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
