package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/stream"
)

// subscriber receives every event by a durable consumer. The administrator creates the consumer, and recreates it after
// a loss of the stream; the subscriber pulls with its own user.
type subscriber struct {
	*part
	admin, own jetstream.JetStream
}

// subscribe is the program of the subscriber.
func subscribe(ctx context.Context, p *part) error {
	admin, err := stream.Connect(p.NATS[natsconfig.Admin])
	if err != nil {
		return err
	}
	defer admin.Close()
	own, err := stream.Connect(p.NATS[natsconfig.Subscriber])
	if err != nil {
		return err
	}
	defer own.Close()
	s := &subscriber{part: p}
	if s.admin, err = jetstream.New(admin); err != nil {
		return err
	}
	if s.own, err = jetstream.NewWithDomain(own, natsconfig.Subscriber); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := s.follow(ctx); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot receive", "error", err)
			_ = loop.Sleep(ctx, 300*time.Millisecond)
		}
	}
	return nil
}

// follow receives messages of the present stream, until an error.
func (s *subscriber) follow(ctx context.Context) error {
	created, err := s.provision(ctx)
	if err != nil {
		return err
	}
	consumer, err := s.own.Consumer(ctx, stream.Name, natsconfig.Subscriber)
	if err != nil {
		return err
	}
	for failures := 0; ctx.Err() == nil; {
		batch, err := consumer.Fetch(200, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			if err := s.receive(m, created); err != nil {
				return err
			}
		}
		if err := batch.Error(); err == nil {
			failures = 0
		} else if failures++; failures > 1 && !errors.Is(err, nats.ErrTimeout) {
			return err
		}
	}
	return nil
}

// provision makes the consumer and returns which stream it is of: the time of the stream's creation.
func (s *subscriber) provision(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	before, err := s.admin.Stream(ctx, stream.Name)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := before.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: natsconfig.Subscriber, FilterSubject: stream.AllSubjects, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: leaseTTL,
	}); err != nil {
		return time.Time{}, err
	}
	after, err := s.admin.Stream(ctx, stream.Name)
	if err != nil {
		return time.Time{}, err
	}
	if created := after.CachedInfo().Created; created.Equal(before.CachedInfo().Created) {
		return created, nil
	}
	return time.Time{}, errors.New("the stream was made again meanwhile")
}

// receive records a message and acknowledges it.
func (s *subscriber) receive(m jetstream.Msg, created time.Time) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	event, err := stream.Decode(m.Subject(), m.Headers(), m.Data())
	if err != nil {
		return err
	}
	s.history.add(entry{
		Op: opReceived, Kind: event.Kind, BizID: event.BizID, Event: event.ID(), Version: event.Version,
		Stream: created, Sequence: meta.Sequence.Stream,
	})
	return m.Ack()
}
