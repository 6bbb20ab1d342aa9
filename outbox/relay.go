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

// Relay publishes the events of a ledger. Make one with [New], and run it once.
type Relay struct {
	config Config
	hooks  hooks
	js     jetstream.JetStream
	lease  *lease

	// The state that one session leaves to the next. It is of the goroutine that publishes.
	wantsRoom   int64     // bytes for which the next session makes room
	purgedAt    time.Time // the last attempt to purge
	isBlocked   bool      // a page waits for room on the stream
	pendingLoss *loss     // found while publishing; the next session repairs it
	repairedAt  time.Time // the last repair
	progress    progress  // at the end of the session
}

const (
	// requestTimeout bounds a request to JetStream. A request under way when the server stops is never
	// answered.
	requestTimeout = 2 * time.Second
	// maxDelay is the longest delay before a relay that failed tries again.
	maxDelay = 2 * time.Second
	// shutdownTimeout bounds each statement that a relay executes after its context is done.
	shutdownTimeout = 5 * time.Second
)

// errAgain ends a session that another one follows at once.
var errAgain = errors.New("begin a new session")

// New returns a relay, or the error of [Config.Validate]. It sends nothing.
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

// Run works, or stands by while another relay works, until ctx is done. Then it finishes the page that it is
// publishing, releases the lease and returns nil.
//
// Run retries forever while PostgreSQL or NATS is unavailable; [Hook].RelayFailed and [ReadStatus] report it.
// It returns an error if it must not or cannot continue: a [*feed.OriginError], a [*ForeignWriterError], a
// [*ForeignStreamError], or one that wraps [ledger.ErrNotMigrated]. If the connection to NATS is closed, for
// example because of wrong credentials, the error wraps [nats.ErrConnectionClosed] and the reason. Run writes
// the error into the lease, where [ReadStatus] reads it. A new relay may run after the cause is gone.
func (r *Relay) Run(ctx context.Context) error {
	publisher, err := stream.NewPublisher(r.config.NATS)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	defer func() { _ = publisher.Close() }() // fails only if the connection is closed already
	defer r.releaseLease(ctx)

	delay := loop.Backoff{Max: maxDelay, Exact: true}
	for {
		began := time.Now()
		err := r.lead(ctx, publisher)
		switch {
		case ctx.Err() != nil:
			return nil
		case isRefusal(err), errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("relay: %w", err)
		case errors.Is(err, errLeaseLost):
			r.config.Logger.InfoContext(ctx, "another relay has taken the lease")
		default:
			r.hooks.each(func(h Hook) { h.RelayFailed(ctx, err) })
			r.config.Logger.WarnContext(ctx, "relay failed; retrying", "error", err)
		}
		if time.Since(began) > maxDelay {
			delay.Reset()
		}
		if loop.Sleep(ctx, delay.Next()) != nil {
			return nil
		}
	}
}

// releaseLease releases the lease if ctx is done. Otherwise Run ends with an error, which stays in the lease.
func (r *Relay) releaseLease(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := r.lease.release(ctx); err != nil {
		r.config.Logger.WarnContext(ctx, "cannot release the relay's lease; it expires by itself",
			"expires_in", r.config.LeaseTTL, "error", err)
	}
}

// lead waits for the lease and works until an error ends that. Its error is never nil.
func (r *Relay) lead(ctx context.Context, publisher *stream.Publisher) error {
	err := r.lease.await(ctx, func() {
		r.config.Logger.InfoContext(ctx, "another relay works; this one stands by")
	})
	if err != nil {
		return r.explain(err)
	}
	r.config.Logger.InfoContext(ctx, "relay has the lease", "holder", r.lease.holder)
	r.hooks.each(func(h Hook) { h.LeadershipChanged(ctx, true) })
	defer r.hooks.each(func(h Hook) { h.LeadershipChanged(ctx, false) })

	g, leading := errgroup.WithContext(ctx)
	g.Go(func() error { return r.lease.renew(leading) })
	g.Go(func() error {
		for {
			if err := r.runSession(leading, publisher); !errors.Is(err, errAgain) {
				return err
			}
		}
	})
	err = r.explain(g.Wait())
	if ctx.Err() == nil && !errors.Is(err, errLeaseLost) {
		r.yieldLease(ctx, err)
	}
	return err
}

// explain adds the reason to an error that was caused by the connection to NATS: it is closed, or it is not
// connected and does not buffer.
func (r *Relay) explain(err error) error {
	last := r.config.NATS.LastError()
	switch {
	case r.config.NATS.IsClosed():
		return fmt.Errorf("%w: %w", nats.ErrConnectionClosed, cmp.Or(last, err))
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("not connected to NATS: %w", cmp.Or(last, nats.ErrDisconnected))
	}
	return err
}

// yieldLease lets another relay take the lease, with the reason. It does so also if ctx ends meanwhile.
func (r *Relay) yieldLease(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := r.lease.yield(ctx, why); err != nil {
		r.config.Logger.WarnContext(ctx, "cannot yield the relay's lease; it expires by itself",
			"expires_in", r.config.LeaseTTL, "error", err)
	}
}
