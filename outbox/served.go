package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/served"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

func init() { served.Run, served.Validate = serveSubscriber, validateServed }

const (
	defaultServedPage = 500
	// servedBytes bounds the stream: a page has at most 8 MiB of data and one event more.
	servedBytes = 64 << 20
	// servedPatience is how long a page waits for acknowledgements until the place of the subscriber is read again.
	servedPatience = 5 * time.Second
)

// serveSubscriber is [served.Run].
func serveSubscriber(ctx context.Context, c served.Config) error {
	if err := validateServed(c); err != nil {
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
	s := &server{Config: c}
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
	publisher, err := stream.NewPublisherTo(c.NATS, stream.PrefixOf(c.NATS).ServedStream(c.Name))
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }() // an error means that the connection is closed
	s.publisher = publisher
	s.encoder = encoder{db: c.DB, prefix: stream.PrefixOf(c.NATS), source: stream.Source(installation),
		archive: c.Archive}
	subscription := subscriptionOf(c, s.receive)
	subscription.opened, subscription.isWhole = s.take, true // a page is on the stream
	return Subscribe(ctx, subscription)
}

func subscriptionOf(c served.Config, receive func(context.Context, []ledger.Event) error) Subscription {
	return Subscription{DB: c.DB, Name: c.Name, From: Start{c.From}, Kinds: c.Kinds, Types: c.Types,
		Archive: c.Archive, PageSize: c.PageSize, Logger: c.Logger, Receive: receive}
}

// validateServed is [served.Validate].
func validateServed(c served.Config) error {
	var faults []error
	nothing := func(context.Context, []ledger.Event) error { return nil }
	if err := subscriptionOf(c, nothing).Validate(); err != nil {
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
		return fmt.Errorf("invalid subscriber: %w", errors.Join(faults...))
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
