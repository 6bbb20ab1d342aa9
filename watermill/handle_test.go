package watermill_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/workers"
)

// secret is a kind whose args a middleware decrypts.
type secret struct {
	Note string `json:"note"`
}

// decrypting is a middleware that replaces the payload, and returns a message about the transaction that
// it sees.
func decrypting(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		plain, ok := strings.CutPrefix(string(m.Payload), "encrypted ")
		if !ok {
			return nil, errors.New("the payload is not encrypted")
		}
		m.Payload = []byte(plain)
		if _, err := h(m); err != nil {
			return nil, err
		}
		if _, ok := watermill.TxFromContext(m.Context()); !ok {
			return nil, nil
		}
		return []*message.Message{message.NewMessage("about-"+m.UUID, nil)}, nil
	}
}

// Middleware works around the handlers of every guarantee. It sees the payload before it is decoded, and
// produces messages where there is a transaction.
func TestMiddlewareOfEveryGuarantee(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.createEffects()
	insert := "insert into effect (biz_id, note) values ($1, $2)"
	inTx := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args secret) error {
		_, err := tx.Exec(ctx, insert, string(job.BizID), args.Note)
		return err
	}
	inSQL := func(ctx context.Context, tx *sql.Tx, job *workers.Job, args secret) error {
		_, err := tx.ExecContext(ctx, insert, string(job.BizID), args.Note)
		return err
	}
	outside := func(ctx context.Context, job *workers.Job, args secret) error {
		_, err := b.DB.Exec(ctx, insert, string(job.BizID), args.Note)
		return err
	}
	kind := func(name string) ledger.TypedKind[secret] {
		return ledger.MustKind[secret](ledger.Kind("test." + name))
	}
	config := watermill.Config{Middleware: []message.HandlerMiddleware{decrypting}}
	never := watermill.Config{
		Middleware: config.Middleware, Kind: workers.KindConfig{Guarantee: workers.AtMostOnce},
	}
	producing := watermill.Config{Middleware: config.Middleware, Produces: "test.about"}
	b.work(
		workers.Handle(kind("pgx"), inTx, b.config(producing)),
		workers.Handle(kind("sql"), inSQL, b.config(producing)),
		workers.Handle(kind("least"), outside, b.config(config)),
		workers.Handle(kind("most"), outside, b.config(never)),
	)
	for _, name := range []string{"pgx", "sql", "least", "most"} {
		m := message.NewMessage(name, []byte(`encrypted {"note":"plain"}`))
		b.Publish("test."+name, m)
		b.AwaitState(ledger.Key{Kind: ledger.Kind("test." + name), BizID: ledger.BizID(name)}, ledger.StateSucceeded)
	}
	if n := b.Count("select count(*) from effect where note = 'plain'"); n != 4 {
		t.Errorf("%d effects, want 4", n)
	}
	if n := b.Count("select count(*) from taskledger.event where kind = 'test.about'"); n != 2 {
		t.Errorf("%d messages were produced, want those of pgx and sql", n)
	}
}

// A payload that does not decode fails by the policy, also where a middleware made it, with every guarantee.
func TestInvalidArgsBehindMiddleware(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	handler := func(context.Context, *workers.Job, secret) error { return nil }
	config := b.config(watermill.Config{
		Middleware: []message.HandlerMiddleware{decrypting},
		Kind:       workers.KindConfig{Guarantee: workers.AtMostOnce, Retry: ledger.RetryPolicy{Attempts: 1}},
	})
	kind := ledger.MustKind[secret]("test.secret")
	b.work(workers.Handle(kind, handler, config))
	b.Publish("test.secret", message.NewMessage("o-1", []byte("encrypted {")))
	key := ledger.Key{Kind: "test.secret", BizID: "o-1"}
	b.AwaitState(key, ledger.StateDead)
	history := b.History(key)
	var data struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(history[len(history)-1].Data, &data); err != nil || data.Reason != "attempts used up" {
		t.Errorf("reason %q, %v", data.Reason, err)
	}
}

// A caller runs the handler with middleware around it, in its own transaction.
func TestCallerWithMiddleware(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.createEffects()
	var seen []string
	noting := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			seen = append(seen, fmt.Sprintf("%s %s", m.UUID, m.Payload))
			_, err := h(m)
			return []*message.Message{message.NewMessage("about-"+m.UUID, nil)}, err
		}
	}
	limit := ledger.Limit{Kind: order.Name(), MaxWaiting: 0, Policy: ledger.CallerRuns}
	if err := ledger.SetLimit(t.Context(), b.DB, limit, ""); err != nil {
		t.Fatal(err)
	}
	config := b.config(watermill.Config{Middleware: []message.HandlerMiddleware{noting}, Produces: "test.about"})
	caller, err := workers.NewCaller(
		order, workers.Handle(order, insertEffect, config), &workers.CallerConfig{Name: "shop"},
	)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		answer, err := caller.Enqueue(t.Context(), tx, "o-1", json.RawMessage(`{"a":1}`), nil)
		if answer.State != ledger.StateSucceeded {
			t.Errorf("the task is %s, want succeeded", answer.State)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of([]string{`o-1 {"a":1}`}, seen); diff != "" {
		t.Error(diff)
	}
	if n := b.Count("select count(*) from effect"); n != 1 {
		t.Errorf("%d effects", n)
	}
	b.AwaitState(ledger.Key{Kind: "test.about", BizID: "about-o-1"}, ledger.StateAvailable)
}

func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	kindError := func(produces ledger.Kind, g workers.Guarantee) error {
		c := watermill.Config{Produces: produces, Kind: workers.KindConfig{Guarantee: g}}
		_, err := c.KindConfig()
		return err
	}
	handleError := func(kind ledger.Kind, c *watermill.Config) error {
		_, err := watermill.Handle(kind, func(*message.Message) ([]*message.Message, error) { return nil, nil }, c)
		return err
	}
	negative := b.config(watermill.Config{Kind: workers.KindConfig{Slots: -1}})
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"AtLeastOnce produces": {
			err:  kindError("test.mail", workers.AtLeastOnce),
			want: "Produces must be empty unless",
		},
		"AtMostOnce produces": {
			err:  kindError("test.mail", workers.AtMostOnce),
			want: "Produces must be empty unless",
		},
		"produces an invalid kind": {
			err:  kindError("a b", workers.ExactlyOnce),
			want: "invalid Produces",
		},
		"messages of an invalid kind": {err: handleError("a b", nil), want: "must contain only"},
		"messages produce an invalid kind": {
			err:  handleError("test.mail", &watermill.Config{Produces: "a b"}),
			want: "invalid Produces",
		},
		"settings of the kind": {
			err:  b.pool().Register(workers.Handle(order, insertEffect, negative)),
			want: "Slots",
		},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, test.err, test.want)
		}
	}
}
