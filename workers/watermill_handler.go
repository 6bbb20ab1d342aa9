package workers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
)

var (
	errNacked      = errors.New("the message was nacked")
	errNoProduces  = errors.New("the handler returned messages, and its kind produces none: set KindConfig.Produces")
	errContextLost = errors.New("a middleware called the handler with another context than that of its message")
)

// RegisterMessages adds a kind whose handler is one of Watermill's. It gets a task as the message
// that was published, in an ExactlyOnce attempt: [TxFromContext] is the transaction to write in,
// the messages it returns become tasks of the kind c.Produces in it, and all of that is committed
// with the task's succeeded event or not at all. In everything else it is like [Register].
func RegisterMessages(p *Pool, kind ledger.Kind, handler message.HandlerFunc, c *KindConfig) error {
	return p.register(registration{name: kind, guarantee: ExactlyOnce, config: c, handler: c.onMessages(handler), acquire: p.acquire})
}

// TxFromContext returns the transaction of the attempt that a message's context belongs to, for a
// handler of [RegisterMessages] and for middleware. It is subject to what [Register] says. False
// if there is none: the attempt is AtLeastOnce, or the context another one.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	if m := inHandOf(ctx); m != nil && m.tx != nil {
		return m.tx, true
	}
	return nil, false
}

// JobFromContext returns the attempt that a message's context belongs to; false if it is another
// context.
func JobFromContext(ctx context.Context) (*Job, bool) {
	if m := inHandOf(ctx); m != nil {
		return m.job, true
	}
	return nil, false
}

// inHand is what the context of a message knows of its attempt.
type inHand struct {
	tx     pgx.Tx // nil: AtLeastOnce
	job    *Job
	reason atomic.Pointer[error] // why it is going to be nacked; nil: nobody said
}

type inHandKey struct{}

func inHandOf(ctx context.Context) *inHand {
	m, _ := ctx.Value(inHandKey{}).(*inHand)
	return m
}

// newMessage returns the message of an attempt.
func newMessage(ctx context.Context, tx pgx.Tx, job *Job, payload []byte) (*message.Message, *inHand, error) {
	msg, err := envelope.Message(job.BizID, payload, job.envelope, job.Traceparent, job.Tracestate)
	if err != nil {
		return nil, nil, &argsError{err}
	}
	m := &inHand{tx: tx, job: job}
	msg.SetContext(context.WithValue(ctx, inHandKey{}, m))
	return msg, m, nil
}

// wrap puts the middleware around a handler.
func (c *KindConfig) wrap(handler handlerFunc) handlerFunc {
	if c == nil || len(c.Middleware) == 0 {
		return handler
	}
	return c.onMessages(func(msg *message.Message) ([]*message.Message, error) {
		m := inHandOf(msg.Context())
		if m == nil {
			return nil, errContextLost
		}
		return nil, handler(msg.Context(), m.tx, m.job, msg.Payload)
	})
}

// onMessages makes a handler of one of Watermill's and the middleware around it.
func (c *KindConfig) onMessages(h message.HandlerFunc) handlerFunc {
	var produces ledger.Kind
	if c != nil {
		produces = c.Produces
		for i := len(c.Middleware) - 1; i >= 0; i-- {
			h = c.Middleware[i](h)
		}
	}
	return func(ctx context.Context, tx pgx.Tx, job *Job, payload []byte) error {
		msg, _, err := newMessage(ctx, tx, job, payload)
		if err != nil {
			return err
		}
		produced, err := h(msg)
		if err != nil {
			return err
		}
		select {
		case <-msg.Nacked():
			return errNacked
		default:
			return produce(ctx, tx, produces, produced)
		}
	}
}

// produce enqueues the messages that a handler returned.
func produce(ctx context.Context, tx pgx.Tx, kind ledger.Kind, messages []*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	if kind == "" {
		return errNoProduces
	}
	entries := make([]ledger.Entry, len(messages))
	for i, m := range messages {
		var err error
		if entries[i], err = envelope.Entry(string(kind), m); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	answers, err := ledger.EnqueueInOrder(ctx, tx, entries)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	for _, a := range answers {
		if err := envelope.Conflict(a); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	return nil
}
