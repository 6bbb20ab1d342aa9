package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// Served configures a subscriber whose events are published on a stream of its own, so that its program needs only a
// NATS client. Stream, subjects and consumer have its name: SUBSCRIBER_mails, subscriber.mails.<shard>.<type>.<kind>
// and mails. The messages are those of docs/events.md.
type Served struct {
	DB   *pgxpool.Pool // the primary database, with the role subscriber. Required.
	NATS *nats.Conn    // a connection of [Connect], with the rights of the user NAME-server. Required.
	Name string        // as in [Subscription]. Required.

	From  feed.Start         // as in [Subscription]
	Kinds []ledger.Kind      // as in [Subscription]
	Types []ledger.EventType // as in [Subscription]

	// PageSize is the maximum number of events that are on the stream at a time. Default: 500.
	PageSize int
	// InFlight is the number of messages that the program may receive before it acknowledges the first, if the consumer
	// is made. With 1 a message that comes again is not overtaken by later ones. Default: PageSize.
	InFlight int
	// Replicas of the stream, if it is made. Default: 1.
	Replicas int
	// Logger logs outages, and events that no message can carry. Default: [slog.Default].
	Logger *slog.Logger
}

const (
	defaultServedPage = 500
	// servedBytes bounds the stream: a page has at most 8 MiB of data and one event more.
	servedBytes = 64 << 20
	// servedPatience is how long a page waits for acknowledgements until the place of the subscriber is read again.
	servedPatience = 5 * time.Second

	headerExpectedLastSeq = jetstream.ExpectedLastSeqHeader
)

// ServedStream returns the name of the stream of a subscriber with this name.
func ServedStream(name string) string { return "SUBSCRIBER_" + name }

// servedSubject returns the subject on which a served subscriber gets a message that the stream LEDGER has on subject.
func servedSubject(name, subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	return "subscriber." + name + "." + rest
}

// ServeSubscriber publishes the events from the place of the subscriber on, until ctx is done, and then returns nil. It
// makes the stream and its consumer if they are missing, before the first event.
//
// A page of events is published when all messages of the one before are acknowledged, and the subscriber passes the
// events of a page when they are: its lag is that of the program, and a loss of the stream loses no event. Events of a
// task arrive in order. After a crash of this process, or of NATS, those of a page may come twice, with the same ce-id.
// Processes of one name stand by for each other.
//
// Errors are those of [Subscribe].
func ServeSubscriber(ctx context.Context, c Served) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.PageSize == 0 {
		c.PageSize = defaultServedPage
	}
	if c.InFlight == 0 {
		c.InFlight = c.PageSize
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &server{Served: c}
	var err error
	if s.js, err = jetstream.New(c.NATS); err != nil {
		return err
	}
	var installation string
	begin := func(ctx context.Context) (time.Duration, error) {
		if _, err := queryRow(ctx, c.DB, installationSQL, nil, &installation); err != nil {
			return 0, pgerr.Explain("read the installation", err)
		}
		_, err := s.ensure(ctx) // before the first event, so that the program finds its consumer
		return 0, err
	}
	if err := s.retryUntilDone(ctx, begin); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	publisher, err := stream.NewPublisherTo(c.NATS, ServedStream(c.Name))
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }() // an error means that the connection is closed
	s.publisher = publisher
	s.encoder = encoder{db: c.DB, source: stream.Source(installation)}
	subscription := c.subscription(s.receive)
	subscription.moved, subscription.isWhole = s.moved, true // a page is on the stream
	return Subscribe(ctx, subscription)
}

func (c Served) subscription(receive func(context.Context, []ledger.Event) error) Subscription {
	return Subscription{DB: c.DB, Name: c.Name, From: c.From, Kinds: c.Kinds, Types: c.Types, PageSize: c.PageSize,
		Logger: c.Logger, Receive: receive}
}

// Validate reports every fault at once.
func (c Served) Validate() error {
	var faults []error
	nothing := func(context.Context, []ledger.Event) error { return nil }
	if err := c.subscription(nothing).Validate(); err != nil {
		faults = append(faults, err)
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("NATS is required"))
	}
	if c.PageSize > stream.MaxPage {
		faults = append(faults, fmt.Errorf("PageSize must be at most %d, got %d", stream.MaxPage, c.PageSize))
	}
	if c.InFlight < 0 || c.Replicas < 0 {
		faults = append(faults, fmt.Errorf("InFlight and Replicas must not be negative, got %d and %d", c.InFlight,
			c.Replicas))
	}
	if len(faults) > 0 {
		return fmt.Errorf("outbox: invalid Served: %w", errors.Join(faults...))
	}
	return nil
}

// retryUntilDone repeats a step until it succeeds or its error is permanent.
func (s *server) retryUntilDone(ctx context.Context, step func(context.Context) (time.Duration, error)) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			wait, err := step(ctx)
			if err == nil {
				done()
			}
			return wait, err
		},
		Stop: pgerr.Permanent,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			s.Logger.WarnContext(ctx, "subscriber failed; retrying", "subscriber", s.Name, "retry_in", in, "error", err)
		},
	}.Run(ctx)
}

// server publishes the events of a served subscriber.
type server struct {
	Served
	js        jetstream.JetStream
	publisher *stream.Publisher
	encoder   encoder

	// published has the sequences of the events of the page that is not passed yet, by their ids; 0: left out. A
	// database that was restored, or a standby that was promoted, may give the position of a lost event to another.
	published map[string]uint64
}

// moved is called when the subscriber has another place, so that nothing of the page that was published counts.
func (s *server) moved() { s.published = nil }

// receive publishes a page, and returns when all its messages are acknowledged. It returns errUnpassed if that takes
// long, so that the subscriber finds whether it was moved; it then gets the same events again.
func (s *server) receive(ctx context.Context, events []ledger.Event) error {
	of, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	if len(s.published) == 0 {
		if err := s.purge(ctx, of); err != nil {
			return err
		}
	}
	last, err := s.publish(ctx, of, events)
	if err != nil {
		return err
	}
	if err := s.await(ctx, of, last); err != nil {
		return err
	}
	s.published = nil
	return nil
}

// purge removes the messages that another process, or this one before the subscriber was moved, has published. None is
// lost: an event without an acknowledgement is not passed, so it follows again unless the subscriber was moved past it.
// A message that the program cannot handle would otherwise stay there, and no page would follow it.
func (s *server) purge(ctx context.Context, of jetstream.Stream) error {
	state := of.CachedInfo().State
	if state.Msgs == 0 {
		return nil
	}
	if err := of.Purge(ctx, jetstream.WithPurgeSequence(state.LastSeq+1)); err != nil {
		return fmt.Errorf("remove old messages from stream %s: %w", ServedStream(s.Name), err)
	}
	return nil
}

// ensure returns the stream, which it makes with its consumer if they are missing.
func (s *server) ensure(ctx context.Context) (jetstream.Stream, error) {
	name := ServedStream(s.Name)
	of, err := s.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.published = nil
		of, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Description: "events of a task ledger for one subscriber; derived from the database",
			Subjects: []string{servedSubject(s.Name, stream.AllSubjects)}, Retention: jetstream.WorkQueuePolicy,
			Discard: jetstream.DiscardNew, MaxBytes: servedBytes, Replicas: max(s.Replicas, 1),
		})
	}
	if err != nil {
		return nil, fmt.Errorf("make stream %s: %w", name, err)
	}
	_, err = of.Consumer(ctx, s.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = of.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: s.Name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: s.InFlight, MaxDeliver: -1,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("make consumer %s of stream %s: %w", s.Name, name, err)
	}
	return of, nil
}

// publish publishes the events that are not on the stream yet, and returns the sequence of the last one. Each message
// names the sequence before its own, so that none is stored after one that was not, nor between those of another
// process.
func (s *server) publish(ctx context.Context, of jetstream.Stream, events []ledger.Event) (last uint64, err error) {
	if s.published == nil {
		s.published = make(map[string]uint64, len(events))
	}
	var rest []ledger.Event
	for _, e := range events {
		if seq, ok := s.published[e.ID()]; ok {
			last = max(last, seq)
		} else {
			rest = append(rest, e)
		}
	}
	before := of.CachedInfo().State.LastSeq
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
		msgs := make([]*nats.Msg, len(b.messages))
		for i, m := range b.messages {
			m.msg.Subject = servedSubject(s.Name, m.msg.Subject)
			m.msg.Header.Set(headerExpectedLastSeq, strconv.FormatUint(before+uint64(i), 10))
			msgs[i] = m.msg
		}
		before += uint64(len(msgs))
		for i, r := range s.publisher.Publish(ctx, msgs, servedPatience) {
			e := b.messages[i].event
			if r.Err != nil {
				return 0, fmt.Errorf("publish the event at position %d to subscriber %s: %w", e.Position, s.Name, r.Err)
			}
			s.published[e.ID()] = r.Seq
			last = max(last, r.Seq)
		}
	}
	return last, nil
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
			return fmt.Errorf("read stream %s: %w", ServedStream(s.Name), err)
		case info.State.LastSeq < last:
			s.published = nil
			return fmt.Errorf("stream %s was lost: its events are published again", ServedStream(s.Name))
		case info.State.Msgs == 0 || info.State.FirstSeq > last:
			return nil
		}
		if loop.Sleep(ctx, wait.Next()) != nil {
			return errUnpassed
		}
	}
}
