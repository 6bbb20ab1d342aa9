package watermill_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/workers"
)

// withDefaults makes a middleware with default settings, whose type is of a module that Watermill uses.
func withDefaults[Settings, Middleware any](newMiddleware func(Settings) Middleware) Middleware {
	var defaults Settings
	return newMiddleware(defaults)
}

// counting returns a middleware that counts its calls.
func counting(calls *atomic.Int32) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			calls.Add(1)
			return h(m)
		}
	}
}

// Watermill's fitting middleware works around a handler that takes args of a Go type.
func TestMiddlewareAroundAHandler(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.createEffects()
	var calls atomic.Int32
	handler := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args json.RawMessage) error {
		if job.Attempt == 1 {
			panic("the first one always panics")
		}
		if _, ok := ctx.Deadline(); !ok || string(args) != `{"a":1}` {
			return errors.New("the handler lacks the context of the middleware or the args")
		}
		return insertEffect(ctx, tx, job, args)
	}
	config := b.config(watermill.Config{
		Kind: workers.KindConfig{Retry: atOnce},
		Middleware: []message.HandlerMiddleware{
			counting(&calls), middleware.Recoverer, middleware.CorrelationID, middleware.Timeout(time.Minute),
			middleware.NewThrottle(1000, time.Second).Middleware,
			withDefaults(middleware.NewCircuitBreaker).Middleware,
		},
	})
	b.work(workers.Handle(order, handler, config))
	b.Publish(string(order.Name()), message.NewMessage("o-1", []byte(`{"a":1}`)))
	task := b.AwaitState(ledger.Key{Kind: order.Name(), BizID: "o-1"}, ledger.StateSucceeded)
	if task.Failures != 1 || !strings.Contains(task.Error, "the first one always panics") || calls.Load() != 2 {
		t.Errorf("%d failures, error %q, %d calls", task.Failures, task.Error, calls.Load())
	}
	if n := b.Count("select count(*) from effect"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// An error of a middleware rolls back the handler's rows and messages; the next attempt commits both, once.
func TestMiddlewareErrorRollsBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.createEffects()
	failFirst := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			produced, err := h(m)
			if job, _ := watermill.JobFromContext(m.Context()); job.Attempt == 1 {
				return produced, errors.New("refused by the middleware")
			}
			more := message.NewMessage(wm.NewUUID(), []byte("from the middleware"))
			return append(produced, more), err
		}
	}
	handler := func(m *message.Message) ([]*message.Message, error) {
		tx, ok := watermill.TxFromContext(m.Context())
		if !ok {
			return nil, errors.New("no transaction")
		}
		insert := "insert into effect (biz_id, note) values ($1, $2)"
		if _, err := tx.Exec(m.Context(), insert, m.UUID, m.Metadata.Get("note")); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage(wm.NewUUID(), m.Payload)}, nil
	}
	b.work(b.handle("test.order", handler, watermill.Config{
		Kind:       workers.KindConfig{Retry: atOnce},
		Middleware: []message.HandlerMiddleware{failFirst, middleware.CorrelationID},
		Produces:   "test.mail",
	}))
	m := message.NewMessage("o-1", []byte("binary \x00"))
	m.Metadata.Set("note", "hello")
	middleware.SetCorrelationID("c-1", m)
	b.Publish("test.order", m)
	task := b.AwaitState(ledger.Key{Kind: "test.order", BizID: "o-1"}, ledger.StateSucceeded)
	if task.Failures != 1 || task.Error != "refused by the middleware" {
		t.Errorf("%d failures, error %q", task.Failures, task.Error)
	}
	if n := b.Count("select count(*) from effect where biz_id = 'o-1' and note = 'hello'"); n != 1 {
		t.Errorf("%d effects", n)
	}
	// Both messages are of the transaction that succeeded.
	if n := b.Count("select count(*) from taskledger.event where kind = 'test.mail'"); n != 2 {
		t.Errorf("%d messages were produced, want 2", n)
	}
	if n := b.Count(`select count(distinct xid) from taskledger.event
		where kind = 'test.mail' or biz_id = 'o-1' and type = 'succeeded'`); n != 1 {
		t.Errorf("in %d transactions, want that of the outcome", n)
	}
	messages := b.Subscribe(b.subscriber(workers.KindConfig{}), "test.mail")
	correlation := make(map[string]string) // there is no order between tasks
	for range 2 {
		got := b.Receive(messages)
		correlation[string(got.Payload)] = middleware.MessageCorrelationID(got)
		got.Ack()
	}
	want := map[string]string{"binary \x00": "c-1", "from the middleware": ""}
	if diff := difference.Of(want, correlation); diff != "" {
		t.Error(diff)
	}
}

// The attempt fails, with its reason, if the handler misuses messages.
func TestMessagesThatFailTheAttempt(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.createEffects()
	b.Publish("test.mail", message.NewMessage("taken", []byte("before")))
	returning := func(id string, payload []byte) message.HandlerFunc {
		return func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage(id, payload)}, nil
		}
	}
	for id, test := range map[string]struct {
		produces ledger.Kind
		handler  message.HandlerFunc
		reason   string // a part of it
	}{
		"nack": {
			handler: func(m *message.Message) ([]*message.Message, error) { m.Nack(); m.Ack(); return nil, nil },
			reason:  "nacked",
		},
		"produces": {handler: returning("m", nil), reason: "set Config.Produces"},
		"invalid":  {handler: returning("", nil), produces: "test.mail", reason: "must not be empty"},
		"conflict": {handler: returning("taken", []byte("another")), produces: "test.mail", reason: "another payload"},
	} {
		kind := ledger.Kind("test." + id)
		handler := func(m *message.Message) ([]*message.Message, error) {
			tx, _ := watermill.TxFromContext(m.Context())
			if _, err := tx.Exec(m.Context(), "insert into effect (biz_id) values ('x')"); err != nil {
				return nil, err
			}
			return test.handler(m)
		}
		b.work(b.handle(kind, handler, watermill.Config{
			Produces: test.produces, Kind: workers.KindConfig{Retry: once},
		}))
		b.checkBuried(kind, test.reason)
	}
	if n := b.Count("select count(*) from effect"); n != 0 {
		t.Errorf("%d effects were not rolled back", n)
	}
}

// once buries a task with its first failure.
var once = ledger.RetryPolicy{Attempts: 1}

// checkBuried publishes a message, whose task must be buried for a reason.
func (b *bundle) checkBuried(kind ledger.Kind, reason string) {
	b.T.Helper()
	b.Publish(string(kind), message.NewMessage("o-1", nil))
	task := b.AwaitState(ledger.Key{Kind: kind, BizID: "o-1"}, ledger.StateDead)
	if !strings.Contains(task.Error, reason) {
		b.T.Errorf("%s: error %q, want one with %q", kind, task.Error, reason)
	}
}

// A middleware that calls the handler with the message's copy, which has no context, fails the attempt.
func TestMiddlewareThatLosesTheContext(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	copying := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) { return h(m.Copy()) }
	}
	b.work(workers.Handle(order, insertEffect, b.config(watermill.Config{
		Kind: workers.KindConfig{Retry: once}, Middleware: []message.HandlerMiddleware{copying},
	})))
	b.checkBuried(order.Name(), "a context other than")
}

// The middleware against which docs/watermill.md warns has the effects described there.
func TestMiddlewareThatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.createEffects()
	poison, err := middleware.PoisonQueue(b.Publisher(), "test.poison")
	if err != nil {
		t.Fatal(err)
	}
	for id, test := range map[string]struct {
		middleware message.HandlerMiddleware
		failures   int
		effects    int
	}{
		// The ack has no effect: the attempt fails, is rolled back, and is retried.
		"instant-ack": {middleware: middleware.InstantAck, failures: 1, effects: 1},
		// Marks a message before it is handled: the second attempt does nothing, and succeeds.
		"deduplicator": {middleware: (&middleware.Deduplicator{}).Middleware, failures: 1, effects: 0},
		// Makes a failure a success: the failed handler's rows are committed.
		"poison-queue": {middleware: poison, failures: 0, effects: 1},
	} {
		kind := ledger.Kind("test." + id)
		handler := func(m *message.Message) ([]*message.Message, error) {
			tx, _ := watermill.TxFromContext(m.Context())
			if _, err := tx.Exec(m.Context(), "insert into effect (biz_id) values ($1)", id); err != nil {
				return nil, err
			}
			if job, _ := watermill.JobFromContext(m.Context()); job.Attempt == 1 {
				return nil, errors.New("failed after it wrote")
			}
			return nil, nil
		}
		b.work(b.handle(kind, handler, watermill.Config{
			Kind:       workers.KindConfig{Retry: atOnce},
			Middleware: []message.HandlerMiddleware{test.middleware},
		}))
		b.Publish(string(kind), message.NewMessage("o-1", []byte(id)))
		task := b.AwaitState(ledger.Key{Kind: kind, BizID: "o-1"}, ledger.StateSucceeded)
		effects := b.Count("select count(*) from effect where biz_id = $1", id)
		if task.Failures != test.failures || effects != test.effects {
			t.Errorf("%s: %d failures and %d effects, want %d and %d as in the docs",
				id, task.Failures, effects, test.failures, test.effects)
		}
	}
}
