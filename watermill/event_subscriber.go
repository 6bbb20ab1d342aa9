package watermill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// SettingsError is the error of a subscription whose group exists on the topic with other settings, so
// that its members would not share the same messages.
type SettingsError struct {
	Group, Topic string
	Difference   string
}

func (e *SettingsError) Error() string {
	return fmt.Sprintf("group %q on topic %q exists with other settings: %s: subscribe with the same settings, "+
		"or use another group", e.Group, e.Topic, e.Difference)
}

// EventSubscriber is a Watermill subscriber to the events of the ledger, as the relay publishes them on the
// stream. A topic is a kind, or a pattern of kinds: "coupon.*", "coupon.>", ">".
//
// A message is delivered until it is acked, so at least once. The events of one task are delivered in the order of
// their versions, even after a nack, and even if several members share a group. With one lane that holds for all events
// of a topic. The price is that a message that is never acked blocks its lane. After a loss of the stream, the relay
// publishes an earlier stretch again, in order. Rarely, an event is on the stream twice without a loss, see package
// outbox.
//
// The message of a task's first event is the published message: UUID, payload and metadata. A later event's message
// uses the event's id as UUID and its data as payload. If it makes the task available again, it carries the task's args
// and metadata. All messages carry the CloudEvents attributes as metadata (ce-id, ce-type, ce-subject, ce-time,
// ce-taskversion, …); [EventOf] returns the event.
//
// The context of a message is done once it is acked or nacked, and when its subscription ends.
// An EventSubscriber is safe for concurrent use.
type EventSubscriber struct {
	config EventSubscriberConfig
	js     jetstream.JetStream

	closing context.Context
	close   context.CancelFunc

	mu     sync.Mutex // guards closed, and open against an Add after Wait
	closed bool
	open   sync.WaitGroup
}

// NewEventSubscriber returns a subscriber, or the error of [EventSubscriberConfig.Validate]. It sends nothing.
func NewEventSubscriber(c EventSubscriberConfig) (*EventSubscriber, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	js, err := jetstream.New(c.NATS)
	if err != nil {
		return nil, fmt.Errorf("watermill: %w", err)
	}
	s := &EventSubscriber{config: c, js: js}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// SubscribeInitialize creates the group on a topic: from then on its messages are kept for it, even while it is without
// subscribers. It returns the errors of [EventSubscriber.Subscribe].
func (s *EventSubscriber) SubscribeInitialize(topic string) error {
	lanes, err := s.lanes(topic)
	if err != nil {
		return err
	}
	return s.initialize(s.closing, lanes)
}

// initializeTimeout bounds how long a server may take to create a group.
const initializeTimeout = 30 * time.Second

func (s *EventSubscriber) initialize(ctx context.Context, lanes []*lane) error {
	ctx, cancel := context.WithTimeout(ctx, initializeTimeout)
	defer cancel()
	for _, l := range lanes {
		if err := l.ensure(ctx, false); err != nil {
			return fmt.Errorf("subscribe to %s: %w", l.topic, err)
		}
	}
	return nil
}

// Subscribe returns the messages of a topic, until ctx is done or the subscriber is closed; then it closes the channel.
// Messages in flight at that time go back to the server at once, and their contexts are done. A later ack is ignored:
// the next subscriber receives the message again.
//
// NATS and the stream must be available; a later outage does not end the subscription. Errors: an
// [*ledger.InvalidError] for a topic that is not a pattern of kinds, a [*SettingsError], [ErrClosed].
func (s *EventSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	lanes, err := s.lanes(topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	s.open.Add(1)
	s.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	if err := s.initialize(ctx, lanes); err != nil {
		cancel()
		s.open.Done()
		if s.closing.Err() != nil {
			return nil, ErrClosed
		}
		return nil, err
	}
	out := make(chan *message.Message)
	var running sync.WaitGroup
	for _, l := range lanes {
		running.Go(func() { l.run(ctx, out) })
	}
	go func() {
		defer s.open.Done()
		running.Wait()
		stop()
		cancel()
		close(out)
	}()
	return out, nil
}

// Close ends all subscriptions and gives their messages in flight back to the server. It returns when
// that is done and their channels are closed, without waiting for handlers. The connection stays open.
// Close is idempotent.
func (s *EventSubscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.open.Wait()
	return nil
}

// lanes returns the lanes of a topic.
func (s *EventSubscriber) lanes(topic string) ([]*lane, error) {
	if err := stream.ValidatePattern(topic); err != nil {
		return nil, fmt.Errorf("invalid topic %q: %w", topic, err)
	}
	lanes := make([]*lane, s.config.Lanes)
	for i := range lanes {
		lanes[i] = newLane(s, topic, i)
	}
	return lanes, nil
}

type eventKey struct{}

// EventOf returns the event of the message that ctx belongs to: ctx is the context of a message from an
// [EventSubscriber], or derived from one. Data and Meta are empty, because they are the message's payload and
// metadata. It returns false for any other context.
func EventOf(ctx context.Context) (ledger.Event, bool) {
	e, ok := ctx.Value(eventKey{}).(ledger.Event)
	return e, ok
}
