package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	ledgerwm "github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/watermill/internal/watermilltest"
	"github.com/taskledger/taskledger/workers"
)

// A router as worker: the messages that its handlers return become tasks, and a failed message is retried,
// with its error in the ledger.
func TestRouterAsWorker(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	router, start := b.Router()
	router.AddMiddleware(ledgerwm.ReportErrors, middleware.Recoverer, middleware.CorrelationID)
	var mu sync.Mutex
	tries := make(map[string]int)
	pack := func(m *message.Message) ([]*message.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		tries[m.UUID]++
		switch {
		case m.UUID == "fails-once" && tries[m.UUID] == 1:
			return nil, errors.New("no box left")
		case m.UUID == "panics-once" && tries[m.UUID] == 1:
			panic("the box broke")
		}
		return []*message.Message{message.NewMessage("ship-"+m.UUID, m.Payload)}, nil
	}
	packing, shipping := b.taskSubscriber(workers.KindConfig{Retry: atOnce}), b.taskSubscriber(workers.KindConfig{})
	router.AddHandler("pack", "order.pack", packing, "order.ship", b.Publisher(), pack)
	shipped := make(chan *message.Message, 3)
	router.AddConsumerHandler("ship", "order.ship", shipping, func(m *message.Message) error {
		shipped <- m
		return nil
	})
	start()
	ids := []string{"works", "fails-once", "panics-once"}
	for _, id := range ids {
		m := message.NewMessage(id, []byte(`"`+id+`"`))
		middleware.SetCorrelationID("c-"+id, m)
		b.Publish("order.pack", m)
	}
	for range ids {
		m := b.Receive(shipped)
		id, _ := strings.CutPrefix(m.UUID, "ship-")
		if string(m.Payload) != `"`+id+`"` || middleware.MessageCorrelationID(m) != "c-"+id {
			t.Errorf("%s: %s %v", m.UUID, m.Payload, m.Metadata)
		}
		b.AwaitState(ledger.Key{Kind: "order.ship", BizID: ledger.BizID(m.UUID)}, ledger.StateSucceeded)
		b.AwaitState(ledger.Key{Kind: "order.pack", BizID: ledger.BizID(id)}, ledger.StateSucceeded)
	}
	for id, reason := range map[string]string{"fails-once": "no box left", "panics-once": "the box broke"} {
		task, err := ledger.Load(t.Context(), b.DB, ledger.Key{Kind: "order.pack", BizID: ledger.BizID(id)})
		if err != nil || task.Failures != 1 || !strings.Contains(task.Error, reason) {
			t.Errorf("%d failures, error %q, %v; want the reason %q", task.Failures, task.Error, err, reason)
		}
	}
}

// SendCoupon is a command.
type SendCoupon struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// Succeeded is a ledger event, as an event processor has it.
type Succeeded struct {
	Worker string `json:"worker"`
}

// ledgerEvents is the CQRS marshaler of ledger events: their names are their types.
type ledgerEvents struct{ cqrs.JSONMarshaler }

func (ledgerEvents) NameFromMessage(m *message.Message) string { return m.Metadata.Get("ce-type") }
func (ledgerEvents) Name(v any) string {
	return "taskledger." + strings.ToLower(cqrs.StructName(v))
}

// A command sent inside a business transaction is handled if and only if that commits, and an event
// processor receives its outcome.
func TestCQRS(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.Exec("create table coupon (order_no text, cents integer)")
	marshaler := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
	send := func(commit bool, command SendCoupon) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
			p, err := ledgerwm.NewPublisher(t.Context(), tx, nil)
			if err != nil {
				return err
			}
			bus, err := cqrs.NewCommandBusWithConfig(p, cqrs.CommandBusConfig{
				GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
					return "coupon.send", nil
				},
				OnSend: func(params cqrs.CommandBusOnSendParams) error { // one coupon for each order
					params.Message.Metadata.Set(ledgerwm.MetadataBizID, params.Command.(SendCoupon).Order)
					return nil
				},
				Marshaler: marshaler,
			})
			if err != nil {
				return err
			}
			if err := bus.Send(t.Context(), command); err != nil {
				return err
			}
			if !commit {
				return errors.New("rolled back")
			}
			return nil
		})
		if (err == nil) != commit {
			t.Fatal(err)
		}
	}

	router, start := b.Router()
	commands, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
			return "coupon.send", nil
		},
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return b.taskSubscriber(workers.KindConfig{}), nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = commands.AddHandlers(cqrs.NewCommandHandler("SendCoupon", func(ctx context.Context, c *SendCoupon) error {
		_, err := b.DB.Exec(ctx, "insert into coupon values ($1, $2)", c.Order, c.Cents)
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	events, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
			return "coupon.>", nil
		},
		SubscriberConstructor: func(params cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return ledgerwm.NewEventSubscriber(ledgerwm.EventSubscriberConfig{NATS: b.NATS, Group: params.HandlerName})
		},
		Marshaler:         ledgerEvents{},
		AckOnUnknownEvent: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	processed := make(chan ledger.Event, 1)
	err = events.AddHandlers(cqrs.NewEventHandler("report", func(ctx context.Context, s *Succeeded) error {
		if s.Worker == "" {
			return errors.New("the event has no worker")
		}
		e, _ := ledgerwm.EventOf(ctx)
		processed <- e
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	start()
	send(false, SendCoupon{Order: "o-1", Cents: 1})
	send(true, SendCoupon{Order: "o-2", Cents: 500})
	send(true, SendCoupon{Order: "o-2", Cents: 500}) // again

	select {
	case e := <-processed:
		if e.BizID != "o-2" || e.Type != ledger.EventSucceeded {
			t.Errorf("the event processor received %s %s", e.ID(), e.Type)
		}
	case <-time.After(watermilltest.Patience):
		t.Fatal("the event processor received no event")
	}
	sent := b.Count("select count(*) from coupon where order_no = 'o-2' and cents = 500")
	all := b.Count("select count(*) from coupon")
	if sent != 1 || all != 1 {
		t.Errorf("%d coupons of o-2, %d in all, want 1", sent, all)
	}
	var payload SendCoupon
	first := b.History(ledger.Key{Kind: "coupon.send", BizID: "o-2"})[0]
	if err := json.Unmarshal(first.Data, &payload); err != nil || payload.Cents != 500 {
		t.Errorf("args %+v, %v", payload, err)
	}
}
