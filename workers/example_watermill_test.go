package workers_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/outbox"
	outboxwm "github.com/taskledger/taskledger/outbox/watermill"
	"github.com/taskledger/taskledger/workers"
)

// Watermill's router as a worker: each task of the kind order.pack is a message, and what the
// handler returns becomes a task of the kind order.ship.
func ExampleSubscriber() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	nc, err := outbox.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := workers.NewSubscriber(workers.SubscriberConfig{Pool: workers.Config{DB: pool, NATS: nc}})
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := outboxwm.NewPublisher(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(nil))
	if err != nil {
		log.Fatal(err)
	}
	router.AddMiddleware(workers.ReportErrors, middleware.Recoverer)
	router.AddHandler("pack", "order.pack", subscriber, "order.ship", publisher, func(m *message.Message) ([]*message.Message, error) {
		// The UUID of what goes on follows from that of what came, so that a second attempt
		// returns the same message, and it is published once.
		return []*message.Message{message.NewMessage("ship-"+m.UUID, m.Payload)}, nil
	})
	if err := router.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A handler of Watermill's with exactly one effect: its rows, the messages it returns and the
// outcome of the task are committed together.
func ExampleRegisterMessages() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	nc, err := outbox.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	p, err := workers.New(workers.Config{DB: pool, NATS: nc})
	if err != nil {
		log.Fatal(err)
	}
	pack := func(m *message.Message) ([]*message.Message, error) {
		tx, _ := workers.TxFromContext(m.Context())
		if _, err := tx.Exec(m.Context(), "insert into parcel (order_no) values ($1)", m.UUID); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage(watermill.NewUUID(), m.Payload)}, nil
	}
	err = workers.RegisterMessages(p, "order.pack", pack, &workers.KindConfig{
		Middleware: []message.HandlerMiddleware{middleware.CorrelationID},
		Produces:   "order.ship",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
