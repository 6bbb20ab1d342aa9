package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wm "github.com/ThreeDotsLabs/watermill/message"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
)

// MetadataBizID is the metadata key of a message whose value becomes the biz_id of its task.
const MetadataBizID = envelope.MetadataBizID

// ErrClosed is what publishers and subscribers return once they are closed.
var ErrClosed = errors.New("outbox: closed")

// PublisherConfig says more about a [Publisher]. Nil means all defaults.
type PublisherConfig struct {
	// Actor who enqueues. Empty: the database's session_user.
	Actor string
	// Logger hears of every statement, at its level trace. Nil: nobody.
	Logger watermill.LoggerAdapter
}

// Publisher is a Watermill publisher whose messages become tasks: the topic is the kind, the
// metadata biz_id, or else the UUID, the biz_id. Payload and metadata come back byte for byte,
// from the subscribers of this module and on the wire (see docs/events.md). A metadata
// traceparent, and a tracestate beside it, becomes the trace context of the task. It is safe for
// concurrent use as far as its database is: a transaction is not.
type Publisher struct {
	ctx    context.Context
	db     ledger.DB
	schema wmsql.SchemaAdapter
	logger watermill.LoggerAdapter

	mu     sync.RWMutex // held by Publish for reading
	closed bool
}

// NewPublisher returns a publisher on db: a pgx.Tx, a *sql.Tx wrapped by ledger/stdsql, or a
// pool. On a transaction, messages are published if and only if it commits; make one publisher
// for each. On a pool, the messages of one Publish are published together or not at all. The
// publisher never commits.
//
// ctx bounds every Publish, since Watermill's interface has no context; the contexts of the
// messages do so too. The database sees the values of the first message's context, then of ctx,
// so that its tracers find their span.
func NewPublisher(ctx context.Context, db ledger.DB, c *PublisherConfig) (*Publisher, error) {
	if ctx == nil || db == nil {
		return nil, errors.New("outbox: a publisher needs a context and a database")
	}
	if c == nil {
		c = &PublisherConfig{}
	}
	return &Publisher{ctx: ctx, db: db, schema: schema{actor: c.Actor}, logger: c.Logger}, nil
}

// Publish enqueues the messages; the stream has them in their order. One that was published
// before is no error, in whatever state its task is, and is not done again.
//
// Errors: [*ledger.InvalidError] for a topic that is no kind, an empty UUID without a biz_id, or
// metadata and payload over the limits (16 KiB, 256 KiB): nothing is published then, and the
// transaction stays usable. [*ledger.ConflictError] for a message whose key is taken by one with
// another payload: that one stays, the others of this call are published, and the transaction
// stays usable. [ErrClosed]; and the errors of [ledger.Enqueue].
func (p *Publisher) Publish(topic string, messages ...*wm.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return ErrClosed
	}
	if len(messages) == 0 {
		return nil
	}
	if _, err := envelope.Kind(topic); err != nil { // the library's rule is another one
		return err
	}
	ctx, cancel := joinContexts(p.ctx, messages)
	defer cancel(nil)
	// One for each call, since the library publishes with a background context of its own.
	publisher, err := wmsql.NewPublisher(executor{ctx: ctx, db: p.db}, wmsql.PublisherConfig{SchemaAdapter: p.schema}, p.logger)
	if err != nil {
		return fmt.Errorf("publish on %s: %w", topic, err)
	}
	return publisher.Publish(topic, messages...)
}

// Close refuses what is published from now on and returns when nothing is being published any
// more. The database stays open. It is idempotent.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// joinContexts returns a context with the values of the first message's context, then of base,
// that is done when base or the context of any message is.
func joinContexts(base context.Context, messages []*wm.Message) (context.Context, context.CancelCauseFunc) {
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

// valuesContext also has the values of another context.
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

// schema tells watermill-sql what to execute for messages: no statement of its own, but the
// enqueue of their tasks, which the executor carries out.
type schema struct {
	wmsql.SchemaAdapter // nil: a publisher asks for nothing else
	actor               string
}

// InsertQuery returns the entries of the tasks as arguments.
func (s schema) InsertQuery(topic string, messages wm.Messages) (wmsql.Query, error) {
	entries := make([]any, len(messages))
	for i, m := range messages {
		entry, err := envelope.Entry(topic, m)
		if err != nil {
			return wmsql.Query{}, err
		}
		entry.Options.Actor = s.actor
		entries[i] = entry
	}
	return wmsql.Query{Query: "ledger.EnqueueInOrder", Args: entries}, nil
}

// executor carries out what schema asks for, in the context of one Publish, and reads the answer.
type executor struct {
	wmsql.ContextExecutor // nil: a publisher executes in this one way
	ctx                   context.Context
	db                    ledger.DB
}

// ExecContext enqueues. The context it is given is a background one.
func (e executor) ExecContext(_ context.Context, _ string, args ...any) (sql.Result, error) {
	entries := make([]ledger.Entry, len(args))
	for i, arg := range args {
		entries[i] = arg.(ledger.Entry)
	}
	if len(entries) == 1 { // for the common case, one statement that is cheaper
		answer, err := ledger.Enqueue(e.ctx, e.db, entries[0].Key, entries[0].Args, entries[0].Options)
		if err != nil {
			return nil, e.cause(err)
		}
		return nil, envelope.Conflict(answer)
	}
	answers, err := ledger.EnqueueInOrder(e.ctx, e.db, entries)
	if err != nil {
		return nil, e.cause(err)
	}
	var conflicts []error
	for _, answer := range answers {
		conflicts = append(conflicts, envelope.Conflict(answer))
	}
	return nil, errors.Join(conflicts...)
}

// cause adds to the error of a statement why its context ended, if it did.
func (e executor) cause(err error) error {
	if cause := context.Cause(e.ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
