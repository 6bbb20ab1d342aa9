package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/feed"
)

// Config of a [Runner].
type Config struct {
	// DB is the primary database. Two of its connections are in use for each projection, and two more while one is
	// rebuilt. Required.
	DB *pgxpool.Pool
	// Projections are run in addition to the built-in one. Their names differ. Default: none.
	Projections []Projection
	// PageSize is the maximum number of events that one transaction applies. Default: 4000, and 1000 for Projections.
	// Pages are this large only during a backlog.
	PageSize int
	// Standby is the pause of a projection that another process runs, give or take a quarter. Default: 5 s.
	Standby time.Duration
	// RetryFailed is the delay after which an event that stops a projection is retried. Default: 5 s.
	RetryFailed time.Duration
	// Logger logs outages, events that cannot be applied and tasks whose events do not fold. Default: [slog.Default].
	Logger *slog.Logger

	found *feed.Findings // of the other feeds of DB; set by Run
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	for _, number := range []struct {
		name string
		n    int64
	}{
		{"PageSize", int64(c.PageSize)}, {"Standby", int64(c.Standby)},
		{"RetryFailed", int64(c.RetryFailed)},
	} {
		if number.n < 0 {
			faults = append(faults, fmt.Errorf("%s must not be negative, got %d", number.name, number.n))
		}
	}
	names := make(map[string]bool)
	for _, p := range c.Projections {
		if err := p.Validate(); err != nil {
			faults = append(faults, err)
		}
		if names[p.Name] {
			faults = append(faults, fmt.Errorf("Projections must have different names, got %q twice", p.Name))
		}
		names[p.Name] = true
	}
	if len(faults) > 0 {
		return fmt.Errorf("projector: invalid Config: %w", errors.Join(faults...))
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Standby == 0 {
		c.Standby = 5 * time.Second
	}
	if c.RetryFailed == 0 {
		c.RetryFailed = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Runner applies the events of the ledger to the built-in projection and to the projections in [Config], as they are
// committed.
type Runner struct{ config Config }

// New returns a runner. It does not use the database yet.
func New(c Config) (*Runner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Runner{c.withDefaults()}, nil
}

// Run runs all projections until ctx is done, and returns nil within 5 s after that, even if an Apply ignores its
// context. Projections are independent: a projection that is slow, stopped or being built does not delay the others.
// Run retries while the database is unavailable, and a projection stands by while another process runs it. It returns
// an error only if it must not continue: [feed.IsRefusal] or [ledger.ErrNotMigrated].
func (r *Runner) Run(ctx context.Context) error {
	c := r.config
	found, leave := feed.Shared(c.DB, feed.ByService)
	defer leave()
	c.found = found
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return newTasksFollower(c).run(ctx) })
	for _, p := range c.Projections {
		own := newOwn(c, p)
		group.Go(func() error { return own.run(ctx) })
		group.Go(func() error { return own.runBuilds(ctx) })
	}
	return group.Wait()
}
