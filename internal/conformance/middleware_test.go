package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var order = ledger.MustKind[json.RawMessage]("test.order")

// work runs a pool until the test ends.
func (b *bundle) work(register func(*workers.Pool) error) {
	b.t.Helper()
	p, err := workers.New(workers.Config{DB: b.db, NATS: b.nc, AckWait: 2 * time.Second, Logger: b.logger()})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := register(p); err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
}

func (b *bundle) effects() {
	b.t.Helper()
	b.exec("create table effect (biz_id text not null, note text)")
}

func insertEffect(ctx context.Context, tx pgx.Tx, job *workers.Job, _ json.RawMessage) error {
	_, err := tx.Exec(ctx, "insert into effect (biz_id) values ($1)", string(job.BizID))
	return err
}

// noted is what an outer middleware sees of the inner ones' work.
func noted(calls *atomic.Int32) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			calls.Add(1)
			return h(m)
		}
	}
}

// withDefaults makes a middleware with default settings, whose type is of a module that Watermill uses.
func withDefaults[Settings, Middleware any](newMiddleware func(Settings) Middleware) Middleware {
	var defaults Settings
	return newMiddleware(defaults)
}

// The middleware that fits, around a handler that knows nothing of it.
func TestMiddlewareAroundAHandler(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.effects()
	var calls atomic.Int32
	b.work(func(p *workers.Pool) error {
		return workers.Register(p, order, func(ctx context.Context, tx pgx.Tx, job *workers.Job, args json.RawMessage) error {
			if job.Attempt == 1 {
				panic("the first one always panics")
			}
			if _, ok := ctx.Deadline(); !ok || string(args) != `{"a":1}` {
				return errors.New("the context of the middleware or the args did not arrive")
			}
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{Retry: atOnce, Middleware: []message.HandlerMiddleware{
			noted(&calls), middleware.Recoverer, middleware.CorrelationID, middleware.Timeout(time.Minute),
			middleware.NewThrottle(1000, time.Second).Middleware,
			withDefaults(middleware.NewCircuitBreaker).Middleware,
		}})
	})
	b.publish(string(order.Name()), message.NewMessage("o-1", []byte(`{"a":1}`)))
	task := b.awaitState(ledger.Key{Kind: order.Name(), BizID: "o-1"}, ledger.StateSucceeded)
	if task.Failures != 1 || !strings.Contains(task.Error, "the first one always panics") || calls.Load() != 2 {
		t.Errorf("%d failures, error %q, %d calls", task.Failures, task.Error, calls.Load())
	}
	if n := b.count("select count(*) from effect"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// An error of a middleware rolls back what the handler wrote and what it published; then
// everything happens exactly once.
func TestMiddlewareErrorRollsBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.effects()
	failFirst := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			produced, err := h(m)
			if job, _ := workers.JobFromContext(m.Context()); job.Attempt == 1 {
				return produced, errors.New("refused by the middleware")
			}
			more := message.NewMessage(watermill.NewUUID(), []byte("from the middleware"))
			return append(produced, more), err
		}
	}
	b.work(func(p *workers.Pool) error {
		return workers.RegisterMessages(p, "test.order", func(m *message.Message) ([]*message.Message, error) {
			tx, ok := workers.TxFromContext(m.Context())
			if !ok {
				return nil, errors.New("no transaction")
			}
			if _, err := tx.Exec(m.Context(), "insert into effect (biz_id, note) values ($1, $2)", m.UUID, m.Metadata.Get("note")); err != nil {
				return nil, err
			}
			return []*message.Message{message.NewMessage(watermill.NewUUID(), m.Payload)}, nil
		}, &workers.KindConfig{Middleware: []message.HandlerMiddleware{failFirst, middleware.CorrelationID}, Produces: "test.mail", Retry: atOnce})
	})
	m := message.NewMessage("o-1", []byte("binary \x00"))
	m.Metadata.Set("note", "hello")
	middleware.SetCorrelationID("c-1", m)
	b.publish("test.order", m)
	task := b.awaitState(ledger.Key{Kind: "test.order", BizID: "o-1"}, ledger.StateSucceeded)
	if task.Failures != 1 || task.Error != "refused by the middleware" {
		t.Errorf("%d failures, error %q", task.Failures, task.Error)
	}
	if n := b.count("select count(*) from effect where biz_id = 'o-1' and note = 'hello'"); n != 1 {
		t.Errorf("%d effects", n)
	}
	// Both messages are of the transaction that succeeded.
	if n := b.count("select count(*) from taskledger.event where kind = 'test.mail'"); n != 2 {
		t.Errorf("%d messages were produced, want 2", n)
	}
	if n := b.count(`select count(distinct xid) from taskledger.event where kind = 'test.mail' or biz_id = 'o-1' and type = 'succeeded'`); n != 1 {
		t.Errorf("in %d transactions, want that of the outcome", n)
	}
	messages := b.subscribe(b.taskSubscriber(workers.KindConfig{}), "test.mail")
	correlation := make(map[string]string) // there is no order between tasks
	for range 2 {
		got := b.receive(messages)
		correlation[string(got.Payload)] = middleware.MessageCorrelationID(got)
		got.Ack()
	}
	if diff := cmp.Diff(map[string]string{"binary \x00": "c-1", "from the middleware": ""}, correlation); diff != "" {
		t.Error(diff)
	}
}

// What a handler must not do with messages fails the attempt, and says so.
func TestMessagesThatFailTheAttempt(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.effects()
	b.publish("test.mail", message.NewMessage("taken", []byte("before")))
	for id, test := range map[string]struct {
		produces ledger.Kind
		handler  message.HandlerFunc
		says     string
	}{
		"nack": {"", func(m *message.Message) ([]*message.Message, error) { m.Nack(); m.Ack(); return nil, nil }, "nacked"},
		"produces": {"", func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("m", nil)}, nil
		}, "KindConfig.Produces"},
		"invalid": {"test.mail", func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("", nil)}, nil
		}, "must not be empty"},
		"conflict": {"test.mail", func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("taken", []byte("another"))}, nil
		}, "another payload"},
		"context": {"", nil, "another context"},
	} {
		kind := ledger.Kind("test." + id)
		b.work(func(p *workers.Pool) error {
			c := &workers.KindConfig{Produces: test.produces, Retry: ledger.RetryPolicy{Attempts: 1}}
			if test.handler == nil {
				c.Middleware = []message.HandlerMiddleware{func(h message.HandlerFunc) message.HandlerFunc {
					return func(m *message.Message) ([]*message.Message, error) { return h(m.Copy()) }
				}}
				return workers.Register(p, ledger.MustKind[json.RawMessage](kind), insertEffect, c)
			}
			return workers.RegisterMessages(p, kind, func(m *message.Message) ([]*message.Message, error) {
				tx, _ := workers.TxFromContext(m.Context())
				if _, err := tx.Exec(m.Context(), "insert into effect (biz_id) values ('x')"); err != nil {
					return nil, err
				}
				return test.handler(m)
			}, c)
		})
		b.publish(string(kind), message.NewMessage("o-1", nil))
		if task := b.awaitState(ledger.Key{Kind: kind, BizID: "o-1"}, ledger.StateDead); !strings.Contains(task.Error, test.says) {
			t.Errorf("%s: %q, want it to say %q", id, task.Error, test.says)
		}
	}
	if n := b.count("select count(*) from effect"); n != 0 {
		t.Errorf("%d effects were not rolled back", n)
	}
	p, err := workers.New(workers.Config{DB: b.db, NATS: b.nc})
	if err != nil {
		t.Fatal(err)
	}
	none := func(context.Context, *workers.Job, json.RawMessage) error { return nil }
	if err := workers.RegisterAtLeastOnce(p, order, none, &workers.KindConfig{Produces: "test.mail"}); err == nil {
		t.Error("AtLeastOnce has no transaction to produce in, and no error")
	}
}

// The middleware that docs/watermill.md warns of does what is said there.
func TestMiddlewareThatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.effects()
	poison, err := middleware.PoisonQueue(b.publisher(), "test.poison")
	if err != nil {
		t.Fatal(err)
	}
	for id, test := range map[string]struct {
		middleware message.HandlerMiddleware
		failures   int
		effects    int
	}{
		// The ack is without effect: the attempt fails, is rolled back, and comes again.
		"instant-ack": {middleware.InstantAck, 1, 1},
		// Marks a message before it is handled: the second attempt does nothing, and succeeds.
		"deduplicator": {(&middleware.Deduplicator{}).Middleware, 1, 0},
		// Makes a failure a success: what the failed handler wrote is committed.
		"poison-queue": {poison, 0, 1},
	} {
		kind := ledger.Kind("test." + id)
		b.work(func(p *workers.Pool) error {
			return workers.RegisterMessages(p, kind, func(m *message.Message) ([]*message.Message, error) {
				tx, _ := workers.TxFromContext(m.Context())
				if _, err := tx.Exec(m.Context(), "insert into effect (biz_id) values ($1)", id); err != nil {
					return nil, err
				}
				if job, _ := workers.JobFromContext(m.Context()); job.Attempt == 1 {
					return nil, errors.New("failed after it wrote")
				}
				return nil, nil
			}, &workers.KindConfig{Middleware: []message.HandlerMiddleware{test.middleware}, Retry: atOnce})
		})
		b.publish(string(kind), message.NewMessage("o-1", []byte(id)))
		task := b.awaitState(ledger.Key{Kind: kind, BizID: "o-1"}, ledger.StateSucceeded)
		if n := b.count("select count(*) from effect where biz_id = $1", id); task.Failures != test.failures || n != test.effects {
			t.Errorf("%s: %d failures and %d effects, the docs say %d and %d", id, task.Failures, n, test.failures, test.effects)
		}
	}
}
