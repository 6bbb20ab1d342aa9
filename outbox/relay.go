package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loglimit"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Relay publishes the events of a ledger. Make one with [New], and run it once.
type Relay struct {
	config  Config
	hooks   hooks
	limited *loglimit.Logger // for lines that repeat
	js      jetstream.JetStream
	lease   *lease
	copies  confirmation
	found   *feed.Findings // of the other feeds of DB, such as the dispatcher's

	// The state that one session leaves to the next. It is of the goroutine that publishes.
	isLimitRefused bool // by NATS, when the relay raised the stream's limit
	mustNumber     bool // the stream has refused messages, and it is not known which

	delay         loop.Backoff // of Run and then of work
	hasProgressed atomic.Bool  // since the last failure
}

const (
	// requestTimeout bounds a request to JetStream. A request under way when the server stops is never
	// answered.
	requestTimeout = 2 * time.Second
	// maxDelay is the longest delay before a relay that failed tries again.
	maxDelay = time.Second
	// minDelay is the first delay. A server that ends all connections leaves some in the pool, and each fails once.
	minDelay = 10 * time.Millisecond
	// shutdownTimeout bounds each statement that a relay executes after its context is done.
	shutdownTimeout = 5 * time.Second
)

// errAgain ends a session without a failure; the next one follows.
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
	l := newLease(c.DB, c.Name, c.LeaseTTL)
	return &Relay{
		config: c, hooks: newHooks(c.Hooks), limited: loglimit.New(), js: js, lease: l,
		delay: loop.Backoff{Min: minDelay, Max: maxDelay, Exact: true},
	}, nil
}

// Run works, or stands by while another relay works, until ctx is done. Then it finishes the page that it is
// publishing, releases the lease and returns nil.
//
// Run retries forever while PostgreSQL or NATS is unavailable; [Hook].RelayFailed and taskledger status report it. It
// returns an error if it must not or cannot continue: a [feed.IsRefusal], a [*ForeignWriterError], a
// [*ForeignStreamError], a [*CopyError], or an error that wraps [ledger.ErrNotMigrated]. If the connection to NATS is
// closed, for example because of wrong credentials, the error wraps [nats.ErrConnectionClosed] and the reason. Run
// writes the error into the lease, where taskledger status reads it. A new relay may run after the cause is gone.
func (r *Relay) Run(ctx context.Context) error {
	publisher, err := stream.NewPublisher(r.config.NATS)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	defer func() { _ = publisher.Close() }() // fails only if the connection is closed already
	defer r.limited.Close()
	defer r.releaseLease(ctx)
	found, leave := feed.Shared(r.config.DB, feed.ByService)
	defer leave()
	r.found = found

	for {
		err := r.lead(ctx, publisher)
		in := r.nextDelay()
		switch {
		case ctx.Err() != nil:
			return nil
		case isFinal(err):
			return fmt.Errorf("relay: %w", err)
		case errors.Is(err, errLeaseLost):
			r.config.Logger.InfoContext(ctx, "another relay has taken the lease")
		default:
			r.failed(ctx, err, in)
		}
		if loop.Sleep(ctx, in) != nil {
			return nil
		}
	}
}

// isFinal reports whether Run ends with an error: waiting cannot help.
func isFinal(err error) bool { return isRefusal(err) || errors.Is(err, nats.ErrConnectionClosed) }

// failed reports an error after which the relay tries again in this time.
func (r *Relay) failed(ctx context.Context, err error, in time.Duration) {
	if isStoreFailure(err) {
		err = &StoreError{Err: err}
	}
	r.hooks.each(func(h Hook) { h.RelayFailed(ctx, err) })
	r.limited.Warn(r.config.Logger, "relay failed; retrying", "retry_in", in, "error", err)
}

// nextDelay returns the delay before the next try. It grows with each failure without progress in between.
func (r *Relay) nextDelay() time.Duration {
	if r.hasProgressed.Swap(false) {
		r.delay.Reset()
	}
	return r.delay.Next()
}

// progress notes that the relay can work: a page is on the stream and its cursor row is committed, or nothing waits.
func (r *Relay) progress() {
	r.hasProgressed.Store(true)
	r.lease.setNote("")
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

// lead waits for the lease and works until an error ends the work. Its error is never nil.
func (r *Relay) lead(ctx context.Context, publisher *stream.Publisher) error {
	err := r.lease.await(ctx, r.config.NATS.IsConnected, func() {
		r.config.Logger.InfoContext(ctx, "another relay works; this one stands by")
	})
	if err != nil {
		return r.explain(err)
	}
	r.config.Logger.InfoContext(ctx, "relay has the lease", "holder", r.lease.holder)
	r.hooks.each(func(h Hook) { h.LeadershipChanged(ctx, true) })
	defer r.hooks.each(func(h Hook) { h.LeadershipChanged(ctx, false) })

	work := func(ctx context.Context) error { return r.work(ctx, publisher) }
	err = loop.Together(ctx, r.lease.hold, r.answer, work)
	if ctx.Err() == nil && isFinal(err) {
		r.yieldLease(ctx, err)
	}
	return err
}

// work runs sessions until ctx is done, the lease is lost or an error is final. The relay keeps its lease during an
// outage of a server: no other relay could work either, and a change of the holder would delay the work when the server
// is back.
func (r *Relay) work(ctx context.Context, publisher *stream.Publisher) error {
	for {
		err := r.runSession(ctx, publisher)
		if err = r.explain(err); ctx.Err() != nil || isFinal(err) || errors.Is(err, errLeaseLost) {
			return err
		}
		in := r.nextDelay()
		if !errors.Is(err, errAgain) {
			r.lease.setError(err)
			r.failed(ctx, err, in)
		}
		if err := loop.Sleep(ctx, in); err != nil {
			return err
		}
	}
}

// explain adds the reason to an error that was caused by the connection to NATS: it is closed, it is not connected, or
// its user may not make a request, which the server then does not answer. A request that waits while the connection is
// lost also fails with ErrConnectionClosed, although the client connects again.
func (r *Relay) explain(err error) error {
	last := r.config.NATS.LastError()
	switch {
	case r.config.NATS.IsClosed():
		return fmt.Errorf("%w: %w", nats.ErrConnectionClosed, cmp.Or(last, err))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("not connected to NATS: %w", cmp.Or(last, nats.ErrDisconnected))
	case relays.IsUnanswered(err) && !errors.Is(err, ledger.ErrUnavailable) &&
		errors.Is(last, nats.ErrPermissionViolation):
		return &refusedUserError{err: last}
	}
	return err
}

// yieldLease lets another relay take the lease, with the reason. It does so even if ctx ends meanwhile.
func (r *Relay) yieldLease(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := r.lease.yield(ctx, why); err != nil {
		r.config.Logger.WarnContext(ctx, "cannot yield the relay's lease; it expires by itself",
			"expires_in", r.config.LeaseTTL, "error", err)
	}
}
