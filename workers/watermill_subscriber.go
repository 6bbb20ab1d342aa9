package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/envelope"
)

// ErrClosed is what a subscriber returns once it is closed.
var ErrClosed = errors.New("workers: closed")

// errNotReceived says that nobody took the message of an attempt, which has not begun then.
var errNotReceived = errors.New("nobody received the message")

// SubscriberConfig says how a [Subscriber] works.
type SubscriberConfig struct {
	// Pool is how the worker behind each subscription works. Its StopTimeout is how long Close
	// lets handlers finish; unlike that of a Pool it is 0 by default: all is given back at once.
	Pool Config
	// Kind is how the tasks of every topic are worked on. Slots is how many messages a
	// subscription has out at a time, default 64; Watermill's router runs as many handlers.
	// Middleware and Produces are the router's matter and not allowed.
	Kind KindConfig
}

// Validate reports every fault at once.
func (c SubscriberConfig) Validate() error {
	faults := []error{c.Pool.Validate()}
	if _, err := c.Kind.withDefaults(DefaultSlotsOutside, c.Pool.withDefaults().AckWait); err != nil {
		faults = append(faults, fmt.Errorf("workers: %w", err))
	}
	if len(c.Kind.Middleware) > 0 || c.Kind.Produces != "" {
		faults = append(faults, errors.New("workers: a subscriber takes no Middleware and Produces nothing: give them to the router"))
	}
	return errors.Join(faults...)
}

// Subscriber is a Watermill subscriber to tasks: a topic is a kind, and each of its tasks a
// message, delivered until it is acked. It is an AtLeastOnce [Pool] whose handler is whoever
// receives from the channel: Ack succeeds the attempt, Nack fails it, so that the kind's policy
// says when the task comes again and when it is buried; [ReportErrors] says why. Until then the
// message is kept alive, and its context ends with the attempt: when it was answered, when it
// takes longer than Kind.Timeout, when the task is cancelled or taken over, when the subscription
// ends. An answer after that is without effect.
//
// Subscribers of one topic share its tasks, in this process and in others; each works by its own
// settings, but for AckWait, which the last to come sets for all. [JobFromContext] tells the
// attempt. It is safe for concurrent use.
type Subscriber struct {
	config SubscriberConfig

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
	if c.Pool.StopTimeout == 0 {
		c.Pool.StopTimeout = time.Nanosecond
	}
	s := &Subscriber{config: c}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe returns the tasks of a topic as messages, until ctx is done or the subscriber is
// closed; then what is in hand is given back, and the channel is closed. PostgreSQL or NATS being
// away does not end it. If it cannot go on, for the reasons that end [Pool.Run], that is logged
// and the channel closed. It returns an [*ledger.InvalidError] for a topic that is no kind, and
// [ErrClosed].
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	kind, err := envelope.Kind(topic)
	if err != nil {
		return nil, err
	}
	pool, err := New(s.config.Pool)
	if err != nil {
		return nil, err
	}
	sub := &subscription{out: make(chan *message.Message)}
	if err := pool.register(registration{name: kind, guarantee: AtLeastOnce, config: &s.config.Kind, handler: sub.handle}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.open.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.closing, cancel)()
		if err := pool.Run(ctx); err != nil {
			pool.config.Logger.ErrorContext(ctx, "subscription ended", "topic", topic, "error", err)
		}
		sub.end()
	})
	return sub.out, nil
}

// Close ends all subscriptions, gives back what they have in hand, and returns when that is done
// and their channels are closed. A message in the middle of a handler is given back as well,
// unless it is answered within the pool's StopTimeout; that uses no attempt. It is idempotent.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.open.Wait()
	return nil
}

// subscription hands the attempts of one pool to whoever receives.
type subscription struct {
	out chan *message.Message

	mu    sync.RWMutex // held by handle for reading
	ended bool
}

// handle is the handler of the kind: its attempt lasts until the message is answered.
func (s *subscription) handle(ctx context.Context, tx pgx.Tx, job *Job, payload []byte) error {
	msg, m, err := newMessage(ctx, tx, job, payload)
	if err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.ended {
		return errNotReceived
	}
	select {
	case s.out <- msg:
	case <-ctx.Done():
		return errNotReceived
	}
	select {
	case <-msg.Acked():
		return nil
	case <-msg.Nacked():
		if reason := m.reason.Load(); reason != nil {
			return *reason
		}
		return errNacked
	case <-ctx.Done():
		select {
		case <-msg.Acked():
			return nil
		default:
			return context.Cause(ctx)
		}
	}
}

// end closes the channel once nobody sends on it any more. The pool has stopped.
func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	close(s.out)
}

// ReportErrors is a middleware for routers that work on the messages of a [Subscriber]. A nack
// says nothing of why; this tells the attempt what its handler returned, so that the task's
// events do, and so that errors which say how to go on are heard. Add it before the middleware
// that changes errors.
func ReportErrors(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if m := inHandOf(msg.Context()); m != nil && err != nil {
			m.reason.Store(&err)
		}
		return produced, err
	}
}
