package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/served"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// server publishes the events of a served subscriber.
type server struct {
	served.Config
	js        jetstream.JetStream
	publisher *stream.Publisher
	encoder   encoder

	isWriter bool   // see take
	last     uint64 // sequence of the stream: every message up to it is known
	old      uint64 // messages up to it are of an earlier writer, see send; 0: none

	// published maps the events of the page that is not passed yet to their sequences, by the events' ids; 0: left out.
	// A database that was restored, or a standby that was promoted, may give the position of a lost event to a new
	// event.
	published map[string]uint64
}

// take makes this process the writer of the stream. claim appends a cursor row.
//
// A process that was stopped may continue while its successor works. If it has read the end of the stream after the
// successor's first message, its claim fails, because the successor has already appended a row. If it has read the end
// earlier, the stream refuses its messages, and it removes none of the successor's.
func (s *server) take(ctx context.Context, isMoved bool, claim func() error) error {
	if s.isWriter && !isMoved {
		return nil
	}
	s.isWriter = false
	fault.Point(fault.SubscriberTake)
	of, _, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	if err := claim(); err != nil {
		return err
	}
	state := of.CachedInfo().State
	s.isWriter, s.last, s.old, s.published = true, state.LastSeq, 0, make(map[string]uint64)
	if state.Msgs > 0 {
		s.old = s.last
	}
	return nil
}

// receive publishes a page, and returns when all its messages are acknowledged. If that takes long, it returns
// errUnpassed, so that the subscriber checks whether it was moved; it then gets the same events again.
func (s *server) receive(ctx context.Context, events []ledger.Event) error {
	of, isNew, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	if isNew {
		return s.lost()
	}
	last, err := s.publish(ctx, of, events)
	if err != nil {
		return err
	}
	if err := s.await(ctx, of, last); err != nil {
		return err
	}
	clear(s.published)
	return nil
}

// lost requests that the page be published again, on a new stream.
func (s *server) lost() error {
	s.isWriter = false
	return fmt.Errorf("stream %s was lost: its events are published again", s.streamName())
}

func (s *server) streamName() string { return stream.PrefixOf(s.NATS).ServedStream(s.Name) }

// subject returns the subject on which the subscriber gets the messages with this subject, or filter, of the relay.
func (s *server) subject(of string) string { return stream.PrefixOf(s.NATS).ServedSubject(s.Name, of) }

// ensure returns the stream, which it makes with its consumer if they are missing, and whether the stream is new.
func (s *server) ensure(ctx context.Context) (of jetstream.Stream, isNew bool, err error) {
	name := s.streamName()
	of, err = s.js.Stream(ctx, name)
	if isNew = errors.Is(err, jetstream.ErrStreamNotFound); isNew {
		of, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Description: "events of a task ledger for one subscriber; derived from the database",
			Subjects: []string{s.subject(stream.PrefixOf(s.NATS).AllSubjects())}, Retention: jetstream.WorkQueuePolicy,
			Discard: jetstream.DiscardNew, MaxBytes: servedBytes, Replicas: max(s.Replicas, 1),
		})
	}
	if err != nil {
		return nil, false, fmt.Errorf("make stream %s: %w", name, err)
	}
	_, err = of.Consumer(ctx, s.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = of.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: s.Name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: s.InFlight, MaxDeliver: -1,
		})
	}
	if err != nil {
		return nil, false, fmt.Errorf("make consumer %s of stream %s: %w", s.Name, name, err)
	}
	return of, isNew, nil
}

// publish publishes the events that are not on the stream yet, and returns the sequence of the last one.
func (s *server) publish(ctx context.Context, of jetstream.Stream, events []ledger.Event) (last uint64, err error) {
	var rest []ledger.Event
	for _, e := range events {
		if _, isPublished := s.published[e.ID()]; !isPublished {
			rest = append(rest, e)
		}
	}
	for len(rest) > 0 {
		b, err := s.encoder.prepare(ctx, rest)
		if err != nil {
			return 0, err
		}
		rest = rest[len(b.events):]
		for _, r := range b.rejects {
			s.published[r.event.ID()] = 0
			s.Logger.ErrorContext(ctx, "no message can carry an event; the subscriber does not get it",
				"subscriber", s.Name, "event", r.event.ID(), "error", r.reason)
		}
		for i := range b.messages {
			m := b.messages[i].msg
			m.Subject = s.subject(m.Subject)
		}
		for _, wave := range waves(b.messages) {
			if err := s.send(ctx, of, wave); err != nil {
				return 0, err
			}
		}
	}
	for _, e := range events {
		last = max(last, s.published[e.ID()])
	}
	return last, nil
}

// send publishes messages of different tasks behind the last known one. Unless all are stored, or a message is refused
// because of the message itself, the content of the stream is unknown, and this process has to take it again.
//
// Then send removes the messages of an earlier writer, which can store no more messages. Their events are not passed,
// so they follow again unless the subscriber was moved past them. Otherwise a message that the program cannot handle
// would stay there, and no page would follow it.
func (s *server) send(ctx context.Context, of jetstream.Stream, wave []message) error {
	fault.Point(fault.SubscriberWave)
	for i, r := range s.publisher.Publish(ctx, expecting(wave, s.last), servedPatience) {
		e := wave[i].event
		if r.Err != nil {
			refused := (*stream.RefusedError)(nil)
			s.isWriter = errors.As(r.Err, &refused) && refused.ForMessage()
			return fmt.Errorf("publish the event at position %d to subscriber %s: %w", e.Position, s.Name, r.Err)
		}
		s.published[e.ID()], s.last = r.Seq, r.Seq
	}
	if s.old == 0 {
		return nil
	}
	if err := of.Purge(ctx, jetstream.WithPurgeSequence(s.old+1)); err != nil {
		return fmt.Errorf("remove old messages from stream %s: %w", s.streamName(), err)
	}
	s.old = 0
	return nil
}

// await waits until all messages up to a sequence are acknowledged, which removes them from the stream.
func (s *server) await(ctx context.Context, of jetstream.Stream, last uint64) error {
	ctx, cancel := context.WithTimeout(ctx, servedPatience)
	defer cancel()
	wait := loop.Backoff{Min: 2 * time.Millisecond, Max: 250 * time.Millisecond}
	for {
		info, err := of.Info(ctx)
		switch {
		case ctx.Err() != nil:
			return errUnpassed
		case err != nil:
			return fmt.Errorf("read stream %s: %w", s.streamName(), err)
		case info.State.LastSeq < last:
			return s.lost()
		case info.State.Msgs == 0 || info.State.FirstSeq > last:
			return nil
		}
		if loop.Sleep(ctx, wait.Next()) != nil {
			return errUnpassed
		}
	}
}
