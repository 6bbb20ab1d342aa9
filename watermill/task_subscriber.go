package watermill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// TaskSubscriberConfig configures a [TaskSubscriber].
type TaskSubscriberConfig struct {
	// Pool configures the pool behind each subscription. Its StopTimeout is how long Close lets handlers
	// finish. Default of StopTimeout: 0, Close gives all messages back at once.
	Pool workers.Config
	// Kind configures the kind of every topic. Slots is how many messages a subscription has in flight
	// at a time; Watermill's router runs as many handlers. Default of Slots: 64.
	Kind workers.KindConfig
}

// Validate reports every fault at once.
func (c TaskSubscriberConfig) Validate() error {
	var guarantee error
	if g := c.Kind.Guarantee; g != "" && g != workers.AtLeastOnce {
		guarantee = fmt.Errorf("Kind.Guarantee must be %s, got %q", workers.AtLeastOnce, g)
	}
	c.Kind.Guarantee = workers.AtLeastOnce
	if err := errors.Join(c.Pool.Validate(), c.Kind.Validate(), guarantee); err != nil {
		return fmt.Errorf("watermill: invalid TaskSubscriberConfig: %w", err)
	}
	return nil
}

// TaskSubscriber is a Watermill subscriber to tasks: a topic is a kind, and each of its tasks a message,
// delivered until it is acked. An ack succeeds the attempt. A nack fails it, so that the kind's policy
// decides when the task is delivered again and when it is buried; [ReportErrors] records the error.
//
// Until it is acked or nacked, a message is kept alive. Its context ends with the attempt: when it is acked or nacked,
// after Kind.Timeout, when the task is cancelled or taken over, and when the subscription ends. Later acks and nacks
// are ignored.
//
// A TaskSubscriber is an AtLeastOnce [workers.Pool] for each topic. Subscribers of one topic share its tasks, in this
// process and in others. Each uses its own settings, except LeaseTTL: the last subscriber sets it for all.
// [JobFromContext] returns the attempt of a message.
//
// It is safe for concurrent use.
type TaskSubscriber struct {
	config TaskSubscriberConfig

	closing context.Context
	close   context.CancelFunc

	mu     sync.Mutex // guards closed, and open against an Add after Wait
	closed bool
	open   sync.WaitGroup
}

// NewTaskSubscriber returns a subscriber, or the error of [TaskSubscriberConfig.Validate]. It sends nothing.
func NewTaskSubscriber(c TaskSubscriberConfig) (*TaskSubscriber, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Pool.StopTimeout == 0 {
		c.Pool.StopTimeout = time.Nanosecond
	}
	if c.Pool.Logger == nil {
		c.Pool.Logger = slog.Default()
	}
	s := &TaskSubscriber{config: c}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe returns the tasks of a topic as messages, until ctx is done or the subscriber is closed; then
// it gives the messages in flight back and closes the channel. An outage of PostgreSQL or NATS does not
// end the subscription. An error that ends [workers.Pool.Run] is logged and closes the channel.
//
// Errors: an [*ledger.InvalidError] for a topic that is not a kind, and [ErrClosed].
func (s *TaskSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	kind, err := envelope.Kind(topic)
	if err != nil {
		return nil, err
	}
	raw, err := ledger.NewKind[[]byte](kind)
	if err != nil {
		return nil, err
	}
	pool, err := workers.New(s.config.Pool)
	if err != nil {
		return nil, err
	}
	sub := &subscription{out: make(chan *message.Message)}
	if err := pool.Register(workers.Handle(raw, sub.handle, &s.config.Kind)); err != nil {
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
			s.config.Pool.Logger.ErrorContext(ctx, "subscription ended", "topic", topic, "error", err)
		}
		sub.end()
	})
	return sub.out, nil
}

// Close ends all subscriptions and gives their messages in flight back. It returns when that is done and
// their channels are closed. A message that a handler is working on is given back too, unless it is
// acked or nacked within the pool's StopTimeout; that uses no attempt. Close is idempotent.
func (s *TaskSubscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.open.Wait()
	return nil
}

// subscription sends the attempts of one pool to a channel.
type subscription struct {
	out chan *message.Message

	mu    sync.RWMutex // held by handle for reading
	ended bool
}

// handle is the handler of the kind. It returns when the message is acked or nacked, or its context ends.
func (s *subscription) handle(ctx context.Context, job *workers.Job, args []byte) error {
	msg, a, err := newMessage(ctx, nil, job, args)
	if err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.ended {
		return workers.ErrNotBegun
	}
	select {
	case s.out <- msg:
	case <-ctx.Done():
		return workers.ErrNotBegun
	}
	select {
	case <-msg.Acked():
		return nil
	case <-msg.Nacked():
		if reason := a.reason.Load(); reason != nil {
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

// end closes the channel after the last send. The pool must have stopped.
func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	close(s.out)
}

// ReportErrors is a middleware for routers that handle the messages of a [TaskSubscriber]. A nack carries no
// reason; ReportErrors passes the handler's error to the attempt. So the task's events record it, and
// errors of package workers such as workers.SnoozeFor take effect. Add it before the middleware that
// changes errors.
func ReportErrors(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if a := attemptOf(msg.Context()); a != nil && err != nil {
			a.reason.Store(&err)
		}
		return produced, err
	}
}
