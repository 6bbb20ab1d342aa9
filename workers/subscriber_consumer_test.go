package workers_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A subscriber's consumer has the name of a consumer of workers. A worker leaves it as it is and names the cure, and
// does not retire it. It works when the consumer has gone.
func TestConsumerOfASubscriberIsLeftAlone(t *testing.T) {
	needMessages(t)
	t.Parallel()
	b := setup(t)
	b.Relay()
	name := stream.Durable(order.Name(), ledger.AllShards)
	consumer := try(b.JS.CreateConsumer(b.Context(), stream.Name, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: stream.Pattern("*", "succeeded", string(order.Name())),
		AckPolicy: jetstream.AckExplicitPolicy,
	}))(t)
	before := consumer.CachedInfo().Config
	var log lockedBuffer
	b.Work(workers.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, exactly(insertEffect, nil))
	b.Enqueue("order-1")
	b.Await("the worker names the cure", func() bool {
		return strings.Contains(log.String(), "belongs to a subscriber")
	})
	if err := workers.Retire(b.Context(), b.As("operator"), b.NC, order.Name(), ledger.AllShards); err == nil {
		t.Error("the consumer was retired")
	}
	after := try(consumer.Info(b.Context()))(t).Config
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the subscriber's consumer has changed: %s", diff)
	}
	if err := b.JS.DeleteConsumer(b.Context(), stream.Name, name); err != nil {
		t.Fatal(err)
	}
	b.AwaitSucceeded(1)
}
