package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Served configures a subscriber whose events are published on a stream of its own, so that its program needs only a
// NATS client. The names of stream, subjects and consumer come from its name: SUBSCRIBER_mails,
// subscriber.mails.<shard>.<type>.<kind> and mails. docs/events.md describes the messages.
type Served struct {
	DB   *pgxpool.Pool // the primary database, with the role subscriber. Required.
	NATS *nats.Conn    // a connection of [Connect], with the rights of the user NAME-server. Required.
	Name string        // as in [Subscription]. Required.

	From  Start              // as in [Subscription]
	Kinds []ledger.Kind      // as in [Subscription]
	Types []ledger.EventType // as in [Subscription]

	// PageSize is the maximum number of events that are on the stream at a time. Default: 500.
	PageSize int
	// InFlight is the number of messages that the program may receive before it acknowledges the first, if the consumer
	// is created. With 1, no later message overtakes a redelivered one. Default: PageSize.
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
)

// ServedStream returns the name of the stream of a subscriber with this name.
func ServedStream(name string) string { return "SUBSCRIBER_" + name }

// servedSubject returns the subject on which a served subscriber gets the message with this subject on LEDGER.
func servedSubject(name, subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	return "subscriber." + name + "." + rest
}

// ServeSubscriber publishes the events from the place of the subscriber on, until ctx is done, and then returns nil. It
// makes the stream and its consumer if they are missing, before the first event.
//
// A page of events is published when all messages of the previous page are acknowledged. The subscriber passes the
// events of a page when they are acknowledged. So its lag is the program's lag, and a loss of the stream loses no
// event. A task's events arrive in order. After a crash of this process, or of NATS, the events of a page may arrive
// twice, with the same ce-id. Processes with the same name stand by for each other.
//
// It returns the errors of [Subscribe].
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
		var err error
		if installation, err = relays.Installation(ctx, c.DB); err != nil {
			return 0, err
		}
		_, _, err = s.ensure(ctx) // before the first event, so that the program finds its consumer
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
	subscription.opened, subscription.isWhole = s.take, true // a page is on the stream
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
