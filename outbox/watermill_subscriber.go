package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Defaults and bounds of [SubscriberConfig].
const (
	DefaultAckWait   = 30 * time.Second
	DefaultNackDelay = time.Second
	MaxLanes         = ledger.Shards
	maxGroup         = 64
)

// SubscriberConfig says what a [Subscriber] works with.
type SubscriberConfig struct {
	// NATS is where the stream is. Required. It should reconnect for ever, see [Connect].
	NATS *nats.Conn
	// Group names those who share the work: of all subscribers of one group and topic, one gets
	// each message. Where the group stands is kept by the server, under this name. Required:
	// letters, digits, '_' and '-', at most 64.
	Group string
	// Types of the events wanted. Nil: all.
	Types []ledger.EventType
	// FromNow lets a group that is new to a topic begin with what is published from now on.
	// Default: with what the stream holds.
	FromNow bool
	// Lanes is how many messages the group may have in hand at a time; those of one task are
	// always in the same lane, one after the other. Default 1, which keeps the order of the
	// whole topic; at most 64.
	Lanes int
	// AckWait is after how long a member that is gone is not waited for any more. As long as
	// one is there, its messages have all the time they need. Default 30 s, at least 1 s.
	AckWait time.Duration
	// NackDelay is after how long a message that was nacked comes again. Until it is acked it
	// holds up its lane. Default 1 s.
	NackDelay time.Duration
	// Logger is told what people should know. Nil: nobody.
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c SubscriberConfig) Validate() error {
	var faults []error
	if c.NATS == nil {
		faults = append(faults, errors.New("NATS is missing"))
	}
	if c.Group == "" || len(c.Group) > maxGroup || strings.Contains(c.Group, ".") || ledger.Kind(c.Group).Validate() != nil {
		faults = append(faults, fmt.Errorf("the Group must be 1 to %d of A-Z a-z 0-9 _ -, is %q", maxGroup, c.Group))
	}
	for _, t := range c.Types {
		if t.State() == ledger.StateNone {
			faults = append(faults, fmt.Errorf("there are no events of type %q", t))
		}
	}
	if c.Lanes < 0 || c.Lanes > MaxLanes {
		faults = append(faults, fmt.Errorf("the Lanes must be 1 to %d, is %d", MaxLanes, c.Lanes))
	}
	if c.AckWait != 0 && c.AckWait < time.Second {
		faults = append(faults, fmt.Errorf("the AckWait must be at least 1s, is %s", c.AckWait))
	}
	if c.NackDelay < 0 {
		faults = append(faults, fmt.Errorf("the NackDelay must not be negative, is %s", c.NackDelay))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("subscriber configuration: %w", err)
	}
	return nil
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	if c.Lanes == 0 {
		c.Lanes = 1
	}
	if c.AckWait == 0 {
		c.AckWait = DefaultAckWait
	}
	if c.NackDelay == 0 {
		c.NackDelay = DefaultNackDelay
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Types = slices.Compact(slices.Sorted(slices.Values(c.Types)))
	return c
}

// SettingsError says that a group exists on a topic with other settings, so that its members
// would not share the same messages.
type SettingsError struct {
	Group, Topic string
	Difference   string
}

func (e *SettingsError) Error() string {
	return fmt.Sprintf("group %q on topic %q exists with other settings: %s: subscribe with the same, or use another group", e.Group, e.Topic, e.Difference)
}

// Subscriber is a Watermill subscriber to the events of the ledger, as the relay publishes them
// on the stream. A topic is a kind, or a pattern of kinds: "coupon.*", "coupon.>", ">".
//
// A message is delivered until it is acked, so at least once. The events of one task come in the
// order of their versions, also after a nack, and also if several members share a group; only
// what the relay publishes anew after a loss repeats an earlier stretch, in order. With one lane
// that is so for all events of a topic. The price is that a message that is never acked holds up
// its lane.
//
// The message of a task's first event is the one that was published: UUID, payload and metadata.
// Those of later events have the event's id as their UUID and its data as payload, or the task's
// args and metadata if they make it available again. All have the CloudEvents attributes as
// metadata (ce-id, ce-type, ce-subject, ce-time, ce-taskversion, …); [EventOf] tells the rest.
//
// The context of a message is done once it is acked or nacked, and when its subscription ends.
// It is safe for concurrent use.
type Subscriber struct {
	config SubscriberConfig
	js     jetstream.JetStream

	closing context.Context
	close   context.CancelFunc

	mu     sync.Mutex // guards the beginning of subscriptions against Close
	closed bool
	open   sync.WaitGroup
}

// NewSubscriber returns a subscriber. It connects to nothing yet. It returns the error of
// [SubscriberConfig.Validate].
func NewSubscriber(c SubscriberConfig) (*Subscriber, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	js, err := jetstream.New(c.NATS)
	if err != nil {
		return nil, fmt.Errorf("subscriber: %w", err)
	}
	s := &Subscriber{config: c, js: js}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// SubscribeInitialize makes the group exist on a topic, so that it gets what is published from
// then on even if nobody subscribes for a while. Errors are those of [Subscriber.Subscribe].
func (s *Subscriber) SubscribeInitialize(topic string) error {
	lanes, err := s.lanes(topic)
	if err != nil {
		return err
	}
	return s.initialize(s.closing, lanes)
}

func (s *Subscriber) initialize(ctx context.Context, lanes []*lane) error {
	ctx, cancel := context.WithTimeout(ctx, initializeTimeout)
	defer cancel()
	for _, l := range lanes {
		if err := l.ensure(ctx, false); err != nil {
			return fmt.Errorf("subscribe to %s: %w", l.topic, err)
		}
	}
	return nil
}

// initializeTimeout bounds how long a server may take to make a group.
const initializeTimeout = 30 * time.Second

// Subscribe returns the messages of a topic, until ctx is done or the subscriber is closed; then
// the channel is closed. What is in hand at that time is given back at once, and its context is
// done: an ack that comes later is without effect, and the message comes again to whoever
// subscribes next.
//
// NATS and the stream have to be there; later they may go away and come back. Errors: an
// [*ledger.InvalidError] for a topic that names no kinds, a [*SettingsError], [ErrClosed].
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *wm.Message, error) {
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
	out := make(chan *wm.Message)
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

// Close ends all subscriptions, gives back what they have in hand, and returns when that is done
// and their channels are closed. It does not wait for handlers. The connection stays open. It is
// idempotent.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.open.Wait()
	return nil
}

// lanes returns the lanes of a topic.
func (s *Subscriber) lanes(topic string) ([]*lane, error) {
	if err := stream.ValidatePattern(topic); err != nil {
		return nil, fmt.Errorf("topic %q names no kinds: %w", topic, err)
	}
	lanes := make([]*lane, s.config.Lanes)
	for i := range lanes {
		lanes[i] = newLane(s, topic, i)
	}
	return lanes, nil
}

type eventKey struct{}

// EventOf returns the event whose message a context belongs to: that of a message from a
// [Subscriber], and what a handler made of it. Data and Meta are empty: the payload is the
// message's. It returns false for any other context.
func EventOf(ctx context.Context) (ledger.Event, bool) {
	e, ok := ctx.Value(eventKey{}).(ledger.Event)
	return e, ok
}
