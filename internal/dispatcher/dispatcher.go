package dispatcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/only"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// term is the lease of the active dispatcher. renewEvery is how often it is renewed.
	term       = 1500 * time.Millisecond
	renewEvery = 300 * time.Millisecond
	// lookEvery is how often a standby dispatcher reads the lease.
	lookEvery = 100 * time.Millisecond
	// standAside is how long a dispatcher that cannot reach NATS leaves the lease to others.
	standAside = 2 * time.Second
)

// Config configures a [Dispatcher].
type Config struct {
	// DB is the primary. The active dispatcher uses at most four connections. Required.
	DB *pgxpool.Pool
	// NATS is the connection to the workers. Required.
	NATS *nats.Conn
	// Latency is how long events gather while tasks are enqueued evenly, at most 1 s. Workers let outcomes gather for
	// five times as long, unless a process waits for an outcome. A lone task and a lone outcome do not wait. Default:
	// 5 ms.
	Latency time.Duration
	// Logger receives changes of the active dispatcher, and outages. Default: [slog.Default].
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("dispatcher: DB is required"))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("dispatcher: NATS is required"))
	}
	if c.Latency < 0 || c.Latency > time.Second {
		faults = append(faults, fmt.Errorf("dispatcher: Latency must be between 0 and 1s, got %s", c.Latency))
	}
	return errors.Join(faults...)
}

// Dispatcher is the service, see the package comment.
type Dispatcher struct {
	config Config
	found  *feed.Findings // of the other feeds of DB, such as the relay's
	only   *only.Task     // nil: all tasks
	// sessions are the workers' leases that were read and checked. With many kinds that takes longer than term.
	sessions lease.Sessions
}

func init() {
	only.Restrict = func(dispatcher any, t *only.Task) { dispatcher.(*Dispatcher).only = t }
}

// New returns a dispatcher. It does not connect to anything yet. It returns the error of [Config.Validate].
func New(c Config) (*Dispatcher, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Latency == 0 {
		c.Latency = 5 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Dispatcher{config: c}, nil
}

// Run stands by until it gets the lease, and then gives out tasks. It returns nil when ctx is done. It retries through
// outages of PostgreSQL and NATS. It returns an error only if retrying is useless: [ledger.ErrNotMigrated]. It must
// not be called twice at the same time.
func (d *Dispatcher) Run(ctx context.Context) error {
	found, leave := feed.Shared(d.config.DB, feed.ByService)
	defer leave()
	d.found = found
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			err := d.standBy(ctx)
			if errors.Is(err, errCutOff) {
				return standAside, nil
			}
			return lookEvery, err
		},
		Stop: pgerr.NotMigrated,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			d.config.Logger.WarnContext(ctx, "cannot give out tasks; retrying", "error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// standBy takes the lease if no other process holds it, and works until the lease is lost.
func (d *Dispatcher) standBy(ctx context.Context) error {
	state, err := lease.LookAtDispatcher(ctx, d.config.DB)
	if err != nil || state.IsAlive && !state.IsGone {
		return err
	}
	holder := rand.Text()
	run, err := d.confirm(ctx, holder)
	if errors.Is(err, errRelayBegins) {
		return nil
	}
	if err != nil {
		return err
	}
	conn, err := d.config.DB.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	identity, err := dispatch.NewIdentity()
	if err != nil {
		return err
	}
	c := lease.DispatcherClaim{
		Holder: holder, For: term, Key: identity.Public(), Backend: conn.Conn().PgConn().PID(), Run: run.Name,
		Latency: d.config.Latency,
	}
	if state.IsGone {
		c.Displaced = state.Holder
	}
	// The first feed of a database gives it an incarnation. A change of incarnation ends an epoch.
	if _, err := feed.Tail(ctx, conn, nil); err != nil {
		return err
	}
	if _, _, err := d.sessions.Read(ctx, d.config.DB); err != nil {
		return err
	}
	asked := time.Now()
	taken, ok, err := takeLease(ctx, conn, c)
	if err != nil || !ok {
		return err
	}
	c.Displaced = ""
	o := newOffice(d.config, conn, identity, c, taken, run, asked)
	o.found, o.only, o.sessions = d.found, d.only, &d.sessions
	log := d.config.Logger.With("epoch", taken.Epoch)
	log.InfoContext(ctx, "dispatcher is active")
	err = o.work(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), term)
	defer cancel()
	if yielded := lease.YieldDispatcher(ending, d.config.DB, c.Holder); yielded != nil {
		log.WarnContext(ctx, "cannot yield the lease of the dispatcher", "expires_in", term, "error", yielded)
	}
	if ctx.Err() != nil {
		log.InfoContext(ctx, "dispatcher has stopped")
		return nil
	}
	log.WarnContext(ctx, "dispatcher has stopped", "error", err)
	if errors.Is(err, errLeaseLost) || errors.Is(err, errRestarted) {
		return nil
	}
	return err
}

// takeLease takes the lease. It goes on after ctx ends, so that a lease granted during a stop is yielded.
func takeLease(ctx context.Context, db ledger.DB, c lease.DispatcherClaim) (lease.DispatcherTerm, bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), term)
	defer cancel()
	return lease.TakeDispatcher(ctx, db, c)
}

var (
	errLeaseLost = errors.New("the lease was lost")
	errCutOff    = errors.New("no worker reports, and NATS cannot be reached")
	errRestarted = errors.New("the database was replaced or restarted")
)
