package main

import (
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// outboxTopic is the topic that the forwarder reads.
const outboxTopic = "outbox"

// destination is the subject of our events of this kind.
var destination = stream.Subject(0, ledger.EventEnqueued, kind.Name())

// watermillSchema returns Watermill's default schema with another batch size.
func watermillSchema(batch int) wmsql.DefaultPostgreSQLSchema {
	return wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch}
}

// migrateWatermill creates Watermill's tables and the business table.
func migrateWatermill(ctx context.Context, t *trial) error {
	s, err := watermillSubscriber(t.db, 100)
	if err != nil {
		return err
	}
	if err := s.SubscribeInitialize(outboxTopic); err != nil {
		return err
	}
	return createEffectTable(ctx, t)
}

func watermillSubscriber(db *pgxpool.Pool, batch int) (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(wmsql.BeginnerFromPgx(db), wmsql.SubscriberConfig{
		SchemaAdapter:  watermillSchema(batch),
		OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval:   10 * time.Millisecond, // default 1 s
	}, watermill.NopLogger{})
}

// publishWatermill publishes in a transaction, like the example in the Forwarder's documentation.
func publishWatermill(ctx context.Context, tx pgx.Tx, ids ...string) error {
	config := wmsql.PublisherConfig{SchemaAdapter: watermillSchema(0)}
	p, err := wmsql.NewPublisher(wmsql.TxFromPgx(tx), config, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages := make([]*message.Message, len(ids))
	for i, id := range ids {
		messages[i] = message.NewMessageWithContext(ctx, watermill.NewUUID(), message.Payload(args))
		messages[i].Metadata.Set("biz_id", id)
	}
	f := forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: outboxTopic})
	return f.Publish(destination, messages...)
}

func enqueueWatermill(ctx context.Context, t *trial, connections int) error {
	if err := migrateWatermill(ctx, t); err != nil {
		return err
	}
	return measureEnqueue(ctx, t, connections, pgxTransaction(func(ctx context.Context, tx pgx.Tx, id string) error {
		return publishWatermill(ctx, tx, id)
	}))
}

// fillWatermill publishes n messages in multi-row inserts.
func fillWatermill(ctx context.Context, db *pgxpool.Pool, n int) error {
	return batches(n, 5000, func(from, to int) error {
		ids := make([]string, 0, to-from)
		for i := from; i < to; i++ {
			ids = append(ids, taskID(i))
		}
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return publishWatermill(ctx, tx, ids...) })
	})
}

// countingPublisher counts the messages that were published and acknowledged.
type countingPublisher struct {
	message.Publisher
	published func(n int)
}

func (p countingPublisher) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if err == nil {
		p.published(len(messages))
	}
	return err
}

// forward runs Watermill's Forwarder until the end of the trial: from SQL to JetStream, with message ids,
// to a stream like ours.
func forward(ctx context.Context, t *trial, address string, published func(n int)) error {
	batch, err := strconv.Atoi(t.tuning)
	if err != nil {
		return err
	}
	subscriber, err := watermillSubscriber(t.db, batch)
	if err != nil {
		return err
	}
	publisher, err := wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: address, JetStream: wmnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	f, err := forwarder.NewForwarder(subscriber, countingPublisher{publisher, published}, watermill.NopLogger{},
		forwarder.Config{ForwarderTopic: outboxTopic, CloseTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	stop := background(ctx, f.Run)
	t.atEnd(func() error {
		_ = f.Close() // reports messages in flight as errors
		_ = stop()
		return nil
	})
	return awaitClosed(ctx, f.Running())
}

// prepareForwarder prepares a database and a broker with a stream for Watermill.
func prepareForwarder(ctx context.Context, t *trial, syncAlways bool) (address string, err error) {
	if err := migrateWatermill(ctx, t); err != nil {
		return "", err
	}
	if address, err = broker(ctx, t, syncAlways); err != nil {
		return "", err
	}
	nc, err := outbox.Connect(address)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	_, err = stream.Ensure(ctx, js, streamSettings, "bench")
	return address, err
}

func relayWatermill(ctx context.Context, t *trial, syncAlways bool, messages int) error {
	address, err := prepareForwarder(ctx, t, syncAlways)
	if err != nil {
		return err
	}
	if err := fillWatermill(ctx, t.db, messages); err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	c := newCounter(messages)
	begin := time.Now()
	if err := forward(ctx, t, address, c.add); err != nil {
		return err
	}
	if err := awaitClosed(ctx, c.done); err != nil {
		return err
	}
	t.add(rate, float64(messages)/time.Since(begin).Seconds(), "events/s")
	nc, err := outbox.Connect(address)
	if err != nil {
		return err
	}
	defer nc.Close()
	return checkMessages(ctx, nc, messages)
}
