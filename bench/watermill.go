package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"
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

// migrateWatermill creates Watermill's tables and the business table. It returns the database as a
// *sql.DB, which Watermill needs.
func migrateWatermill(ctx context.Context, t *trial) (*sql.DB, error) {
	db := stdlib.OpenDBFromPool(t.db)
	db.SetMaxIdleConns(0) // pgx's pool keeps idle connections
	t.atEnd(db.Close)
	s, err := watermillSubscriber(db, 100)
	if err != nil {
		return nil, err
	}
	if err := s.SubscribeInitialize(outboxTopic); err != nil {
		return nil, err
	}
	return db, createEffectTable(ctx, t)
}

func watermillSubscriber(db *sql.DB, batch int) (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		SchemaAdapter:  watermillSchema(batch),
		OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval:   10 * time.Millisecond, // default 1 s
	}, watermill.NopLogger{})
}

// publishWatermill publishes in a transaction, like the example in the Forwarder's documentation.
func publishWatermill(tx wmsql.ContextExecutor, ids ...string) error {
	p, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: watermillSchema(0)}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages := make([]*message.Message, len(ids))
	for i, id := range ids {
		messages[i] = message.NewMessage(watermill.NewUUID(), message.Payload(args))
		messages[i].Metadata.Set("biz_id", id)
	}
	f := forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: outboxTopic})
	return f.Publish(destination, messages...)
}

// enqueueWatermill measures transactions of database/sql.
func enqueueWatermill(ctx context.Context, t *trial, n int) error {
	db, err := migrateWatermill(ctx, t)
	if err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	conns := make([]*sql.Conn, n)
	for i := range conns {
		if conns[i], err = db.Conn(ctx); err != nil {
			return err
		}
		defer func() { _ = conns[i].Close() }()
		if err := transactionWatermill(ctx, conns[i], warmUpPrefix+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	var before meter
	if err := before.read(ctx, t); err != nil {
		return err
	}
	var done atomic.Int64
	begin := time.Now()
	until := begin.Add(t.duration())
	err = concurrently(n, func(c int) error {
		for i := 0; time.Now().Before(until); i++ {
			if err := transactionWatermill(ctx, conns[c], fmt.Sprintf("%d-%d", c, i)); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.add(rate, float64(done.Load())/time.Since(begin).Seconds(), "tx/s")
	return before.add(ctx, t, int(done.Load()))
}

func transactionWatermill(ctx context.Context, conn *sql.Conn, id string) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, statement("effect"), id); err != nil {
		return err
	}
	if err := publishWatermill(tx, id); err != nil {
		return err
	}
	return tx.Commit()
}

// fillWatermill publishes n messages in multi-row inserts.
func fillWatermill(ctx context.Context, db *sql.DB, n int) error {
	return batches(n, 5000, func(from, to int) error {
		ids := make([]string, 0, to-from)
		for i := from; i < to; i++ {
			ids = append(ids, taskID(i))
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := publishWatermill(tx, ids...); err != nil {
			return err
		}
		return tx.Commit()
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
func forward(ctx context.Context, t *trial, db *sql.DB, address string, published func(n int)) error {
	batch, err := strconv.Atoi(t.tuning)
	if err != nil {
		return err
	}
	subscriber, err := watermillSubscriber(db, batch)
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
func prepareForwarder(ctx context.Context, t *trial, syncAlways bool) (*sql.DB, string, error) {
	db, err := migrateWatermill(ctx, t)
	if err != nil {
		return nil, "", err
	}
	address, err := broker(ctx, t, syncAlways)
	if err != nil {
		return nil, "", err
	}
	nc, err := outbox.Connect(address)
	if err != nil {
		return nil, "", err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, "", err
	}
	_, err = stream.Ensure(ctx, js, streamSettings, "bench")
	return db, address, err
}

func relayWatermill(ctx context.Context, t *trial, syncAlways bool, messages int) error {
	db, address, err := prepareForwarder(ctx, t, syncAlways)
	if err != nil {
		return err
	}
	if err := fillWatermill(ctx, db, messages); err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	c := newCounter(messages)
	begin := time.Now()
	if err := forward(ctx, t, db, address, c.add); err != nil {
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
