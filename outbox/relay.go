package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
)

// Relay publishes the events of a ledger. Make one with [New], run it once.
type Relay struct {
	config    Config
	hooks     hooks
	js        jetstream.JetStream
	lease     *lease
	pressed   bool      // the next session shall make room in the stream
	relieved  time.Time // when one last did
	full      bool      // a page waits for room
	suspicion *loss     // a loss found while publishing; the next session makes up for it
	recovered time.Time // when one last did
}

// requestTimeout bounds a question to JetStream: one that was asked when the server went away is
// never answered.
const requestTimeout = 2 * time.Second

// New returns a relay, or an error that names every fault of the configuration. It talks to
// nobody yet.
func New(c Config) (*Relay, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	js, err := jetstream.New(c.NATS, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return &Relay{config: c, hooks: c.Hooks, js: js, lease: newLease(c.DB, c.Name, c.LeaseTTL)}, nil
}

// maxDelay is the longest delay before a relay that failed tries again.
const maxDelay = 2 * time.Second

// goodbye bounds what a relay does after it was told to stop.
const goodbye = 5 * time.Second

// Run works, or stands by while another relay works, until ctx is done; then it finishes the
// page in hand, gives the lease back and returns nil.
//
// What is away is waited for, for ever: [Observer].Failed and [ReadStatus] tell. It returns an
// error only when it must not or cannot go on: [*feed.OriginError], [*ForeignWriterError],
// [*ForeignStreamError], or one that wraps [ledger.ErrNotMigrated] or, since a closed connection
// to NATS stays closed, [nats.ErrConnectionClosed] and the reason, wrong credentials for one.
// The error is left in the lease, where [ReadStatus] finds it. Once its cause is gone a new relay
// goes on.
func (r *Relay) Run(ctx context.Context) error {
	publisher, err := stream.NewPublisher(r.config.NATS)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	defer publisher.Close()
	defer r.sayGoodbye(ctx)

	delay := loop.Backoff{Max: maxDelay, Exact: true}
	for {
		began := time.Now()
		err := r.term(ctx, publisher)
		switch {
		case ctx.Err() != nil:
			return nil
		case refuses(err), errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("relay: %w", err)
		case errors.Is(err, errLeaseLost):
			r.config.Logger.InfoContext(ctx, "another relay has taken the lease")
		default:
			r.hooks.each(func(h Hook) { h.RelayFailed(ctx, err) })
			r.config.Logger.WarnContext(ctx, "relay cannot work; it tries again", "error", err)
		}
		if time.Since(began) > maxDelay {
			delay.Reset()
		}
		if loop.Sleep(ctx, delay.Next()) != nil {
			return nil
		}
	}
}

// sayGoodbye gives the lease back if the relay was told to stop; else what it ended with stays
// there to be read.
func (r *Relay) sayGoodbye(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if err := r.lease.release(ctx); err != nil {
		r.config.Logger.WarnContext(ctx, "relay could not give its lease back; it ends by itself", "error", err)
	}
}

// term waits for the lease and works until something is in the way. It returns an error always.
func (r *Relay) term(ctx context.Context, publisher *stream.Publisher) error {
	err := r.lease.await(ctx, func() { r.config.Logger.InfoContext(ctx, "another relay works; this one stands by") })
	if err != nil {
		return r.offline(err)
	}
	r.config.Logger.InfoContext(ctx, "relay has the lease", "holder", r.lease.holder)
	r.hooks.each(func(h Hook) { h.LeadershipChanged(ctx, true) })
	defer r.hooks.each(func(h Hook) { h.LeadershipChanged(ctx, false) })

	g, held := errgroup.WithContext(ctx)
	g.Go(func() error { return r.lease.keep(held) })
	g.Go(func() error {
		for {
			if err := r.session(held, publisher); !errors.Is(err, errAgain) {
				return err
			}
		}
	})
	err = r.offline(g.Wait())
	if ctx.Err() == nil && !errors.Is(err, errLeaseLost) {
		r.leaveWord(ctx, err)
	}
	return err
}

// offline says that there is no connection to NATS, and why, where the client would only say that
// it must not buffer; err, if there is one. A closed connection stays closed.
func (r *Relay) offline(err error) error {
	last := r.config.NATS.LastError()
	switch {
	case r.config.NATS.IsClosed():
		return fmt.Errorf("%w: %w", nats.ErrConnectionClosed, cmp.Or(last, err))
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("not connected to NATS: %w", cmp.Or(last, nats.ErrDisconnected))
	}
	return err
}

// leaveWord yields the lease, also when the relay is told to stop meanwhile.
func (r *Relay) leaveWord(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if err := r.lease.yield(ctx, why); err != nil {
		r.config.Logger.WarnContext(ctx, "relay could not yield its lease; it ends by itself", "error", err)
	}
}

// errAgain ends a session that shall be followed by another at once.
var errAgain = errors.New("begin a new session")
