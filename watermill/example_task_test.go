package watermill_test

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
	ledgerwm "github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/workers"
)

// Watermill's router as a worker: each task of the kind order.pack is a message, and the messages that
// the handler returns become tasks of the kind order.ship.
func ExampleTaskSubscriber() {
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
	config := ledgerwm.TaskSubscriberConfig{Pool: workers.Config{DB: pool, NATS: nc}}
	subscriber, err := ledgerwm.NewTaskSubscriber(config)
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := ledgerwm.NewPublisher(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(nil))
	if err != nil {
		log.Fatal(err)
	}
	router.AddMiddleware(ledgerwm.ReportErrors, middleware.Recoverer)
	pack := func(m *message.Message) ([]*message.Message, error) {
		// The UUID is derived from that of m, so that a second attempt returns the same message, which
		// is then published once.
		return []*message.Message{message.NewMessage("ship-"+m.UUID, m.Payload)}, nil
	}
	router.AddHandler("pack", "order.pack", subscriber, "order.ship", publisher, pack)
	if err := router.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A handler of Watermill with exactly one effect: its rows, the messages that it returns and the outcome
// of the task are committed together.
func ExampleHandle() {
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
		tx, _ := ledgerwm.TxFromContext(m.Context())
		if _, err := tx.Exec(m.Context(), "insert into parcel (order_no) values ($1)", m.UUID); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage(watermill.NewUUID(), m.Payload)}, nil
	}
	packing, err := ledgerwm.Handle("order.pack", pack, &ledgerwm.Config{
		Middleware: []message.HandlerMiddleware{middleware.CorrelationID},
		Produces:   "order.ship",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Register(packing); err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
