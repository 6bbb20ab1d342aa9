package conformance_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/taskledger/taskledger/ledger"
	ledgerwm "github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/workers"
)

// atOnce retries failed attempts without a delay, which would need a scheduler.
var atOnce = ledger.RetryPolicy{Ladder: []time.Duration{0}, Attempts: 1000}

// tasks is the Pub/Sub of publisher and task subscriber.
func (b *bundle) tasks(t *testing.T) (message.Publisher, message.Subscriber) {
	t.Helper()
	p, err := ledgerwm.NewPublisher(t.Context(), b.DB, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, b.taskSubscriber(workers.KindConfig{Retry: atOnce})
}

func (b *bundle) taskSubscriber(c workers.KindConfig) *ledgerwm.TaskSubscriber {
	b.T.Helper()
	s, err := ledgerwm.NewTaskSubscriber(ledgerwm.TaskSubscriberConfig{
		Pool: workers.Config{DB: b.DB, NATS: b.NATS, LeaseTTL: 2 * time.Second, Logger: b.Logger()},
		Kind: c,
	})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { _ = s.Close() }) // the suite leaves some open
	return s
}

// taskFeatures claims persistence only. Subscribers of a kind share its tasks, so there are no groups, new
// subscribers receive no old messages, and there is no order between tasks.
func (b *bundle) taskFeatures() tests.Features {
	return tests.Features{Persistent: true}
}

func TestWatermillTasks(t *testing.T) {
	b := newBundle(t)
	tests.TestPubSub(t, b.taskFeatures(), b.tasks, nil)
}
