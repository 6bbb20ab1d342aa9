package conformance_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/taskledger/taskledger/ledger"
	outboxwm "github.com/taskledger/taskledger/outbox/watermill"
	"github.com/taskledger/taskledger/workers"
)

// atOnce repeats failed attempts without a delay, for which there would have to be a scheduler.
var atOnce = ledger.RetryPolicy{Ladder: []time.Duration{0}, Attempts: 1000}

// tasks is the Pub/Sub of publisher and task subscriber.
func (b *bundle) tasks(t *testing.T) (message.Publisher, message.Subscriber) {
	t.Helper()
	p, err := outboxwm.NewPublisher(t.Context(), b.db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, b.taskSubscriber(workers.KindConfig{Retry: atOnce})
}

func (b *bundle) taskSubscriber(c workers.KindConfig) *workers.Subscriber {
	b.t.Helper()
	s, err := workers.NewSubscriber(workers.SubscriberConfig{
		Pool: workers.Config{DB: b.db, NATS: b.nc, AckWait: 2 * time.Second, Logger: b.logger()},
		Kind: c,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() }) // the suite leaves some open
	return s
}

// taskFeatures: tasks are persistent; who shares their kind shares the work, so there are no
// groups and no old messages for new subscribers, and no order between tasks.
func (b *bundle) taskFeatures() tests.Features {
	return tests.Features{Persistent: true, RestartServiceCommand: b.suiteRestarts()}
}

func TestWatermillTasks(t *testing.T) {
	b := newBundle(t)
	tests.TestPubSub(t, b.taskFeatures(), b.tasks, nil)
}
