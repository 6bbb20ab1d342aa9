package watermill_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	ledgerwm "github.com/taskledger/taskledger/watermill"
)

// A command bus inside a business transaction: the command is sent if and only if the
// transaction commits, and one order gets one coupon, however often it is sent.
func ExampleNewPublisher() {
	type SendCoupon struct{ Order string }
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (order_no) values ($1)", "o-4711"); err != nil {
			return err
		}
		publisher, err := ledgerwm.NewPublisher(ctx, tx, nil)
		if err != nil {
			return err
		}
		bus, err := cqrs.NewCommandBusWithConfig(publisher, cqrs.CommandBusConfig{
			GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
				return "coupon.send", nil
			},
			OnSend: func(p cqrs.CommandBusOnSendParams) error {
				p.Message.Metadata.Set(ledgerwm.MetadataBizID, p.Command.(SendCoupon).Order)
				return nil
			},
			Marshaler: cqrs.JSONMarshaler{},
		})
		if err != nil {
			return err
		}
		return bus.Send(ctx, SendCoupon{Order: "o-4711"})
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The outcomes of all coupons, in order for each task, delivered once to the whole group "report".
func ExampleEventSubscriber() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	nc, err := outbox.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := ledgerwm.NewEventSubscriber(ledgerwm.EventSubscriberConfig{
		NATS:  nc,
		Group: "report",
		Types: []ledger.EventType{ledger.EventSucceeded, ledger.EventBuried},
		Lanes: 8,
	})
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(nil))
	if err != nil {
		log.Fatal(err)
	}
	router.AddConsumerHandler("report", "coupon.>", subscriber, func(m *message.Message) error {
		e, _ := ledgerwm.EventOf(m.Context())
		fmt.Println(e.Key, e.Type, string(m.Payload))
		return nil
	})
	if err := router.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
