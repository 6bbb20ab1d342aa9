package watermill

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
)

// MetadataBizID is the metadata key of a message whose value becomes the biz_id of its task.
const MetadataBizID = envelope.MetadataBizID

// ErrClosed is the error of a publisher or subscriber that is closed.
var ErrClosed = errors.New("watermill: closed")

// PublisherConfig holds the optional settings of a [Publisher]. Nil means all defaults.
type PublisherConfig struct {
	// Actor is the author of the events. Default: the database's session_user.
	Actor string
	// Logger receives the topic and the number of messages of each Publish, at its level trace. Default: disabled.
	Logger watermill.LoggerAdapter
}

// Publisher is a Watermill publisher whose messages become tasks. The topic is the kind; the biz_id is
// the metadata biz_id, or else the UUID. Subscribers of this module and the stream (docs/events.md)
// return payload and metadata byte for byte. A metadata traceparent, with an optional tracestate,
// becomes the trace context of the task.
//
// It is safe for concurrent use if its database is: a transaction is not.
type Publisher struct {
	ctx    context.Context
	db     ledger.DB
	actor  string
	logger watermill.LoggerAdapter

	mu     sync.RWMutex // held by Publish for reading
	closed bool
}

// NewPublisher returns a publisher on db: a pgx.Tx, a *sql.Tx wrapped by ledger/stdsql, or a pool. On a
// transaction, messages are published if and only if it commits; make one publisher for each. On a
// pool, the messages of one Publish are published together or not at all. The publisher never commits.
//
// ctx bounds every Publish, because Watermill's interface takes no context; so do the contexts of the messages. Tracers
// of the database see the values of the first message's context, then the values of ctx.
func NewPublisher(ctx context.Context, db ledger.DB, c *PublisherConfig) (*Publisher, error) {
	if ctx == nil || db == nil {
		return nil, errors.New("watermill: NewPublisher requires a context and a database")
	}
	if c == nil {
		c = &PublisherConfig{}
	}
	p := &Publisher{ctx: ctx, db: db, actor: c.Actor, logger: c.Logger}
	if p.logger == nil {
		p.logger = watermill.NopLogger{}
	}
	return p, nil
}

// Publish enqueues the messages; they reach the stream in their order. Publishing a message again is not an error and
// changes nothing, whatever the state of its task.
//
// Errors:
//   - [*ledger.InvalidError] for a topic that is not a kind, an empty UUID without a biz_id, or metadata
//     or a payload over the limits (16 KiB, 256 KiB). Nothing is published; the transaction stays usable.
//   - [*ledger.OtherArgsError] if a task with a message's key but another payload exists. That task stays,
//     the other messages are published, and the transaction stays usable.
//   - [ErrClosed], and the errors of [ledger.Enqueue].
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return ErrClosed
	}
	if len(messages) == 0 {
		return nil
	}
	if _, err := envelope.Kind(topic); err != nil {
		return err
	}
	entries, err := p.entries(topic, messages)
	if err != nil {
		return fmt.Errorf("publish on %s: %w", topic, err)
	}
	p.logger.Trace("Enqueueing messages", watermill.LogFields{"topic": topic, "messages": len(messages)})
	ctx, cancel := joinContexts(p.ctx, messages)
	defer cancel(nil)
	if err := p.enqueue(ctx, entries); err != nil {
		return fmt.Errorf("publish on %s: %w", topic, err)
	}
	return nil
}

// Close makes every later Publish fail, and returns when those under way have ended. The database stays
// open. Close is idempotent.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// joinContexts returns a context that is done when base or the context of any message is done. It takes a value from
// the first message's context, or else from base.
func joinContexts(base context.Context, messages []*message.Message) (context.Context, context.CancelCauseFunc) {
	values := base
	if m := messages[0]; m != nil && m.Context() != context.Background() {
		values = m.Context()
	}
	ctx, cancel := context.WithCancelCause(values)
	var stops []func() bool
	until := func(other context.Context) {
		if other.Err() != nil {
			cancel(context.Cause(other))
		} else if other.Done() != nil {
			stops = append(stops, context.AfterFunc(other, func() { cancel(context.Cause(other)) }))
		}
	}
	if values != base {
		until(base)
	}
	for _, m := range messages {
		if m != nil {
			until(m.Context())
		}
	}
	end := func(cause error) {
		for _, stop := range stops {
			stop()
		}
		cancel(cause)
	}
	if values == base {
		return ctx, end
	}
	return valuesContext{ctx, base}, end
}

// valuesContext adds the values of another context.
type valuesContext struct {
	context.Context
	more context.Context
}

func (c valuesContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.more.Value(key)
}

// entries returns the tasks of messages.
func (p *Publisher) entries(topic string, messages []*message.Message) ([]ledger.Entry, error) {
	entries := make([]ledger.Entry, len(messages))
	for i, m := range messages {
		entry, err := entryOf(topic, m)
		if err != nil {
			return nil, err
		}
		entry.Options.Actor = p.actor
		entries[i] = entry
	}
	return entries, nil
}

// enqueue enqueues the entries in their order.
func (p *Publisher) enqueue(ctx context.Context, entries []ledger.Entry) error {
	if len(entries) == 1 { // a cheaper statement for the common case
		answer, err := ledger.Enqueue(ctx, p.db, entries[0].Key, entries[0].Args, entries[0].Options)
		if err != nil {
			return withCause(ctx, err)
		}
		return envelope.Conflict(answer)
	}
	answers, err := ledger.EnqueueInOrder(ctx, p.db, entries)
	if err != nil {
		return withCause(ctx, err)
	}
	var conflicts []error
	for _, answer := range answers {
		conflicts = append(conflicts, envelope.Conflict(answer))
	}
	return errors.Join(conflicts...)
}

// withCause adds the cause of the context's end, if it has ended, to the error of a statement.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
