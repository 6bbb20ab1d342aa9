package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
)

// Config of a [Runner].
type Config struct {
	// DB is the primary database. Two of its connections are in use. Required.
	DB *pgxpool.Pool
	// PageSize is the maximum number of events that one transaction applies. Default: 4000.
	// Pages are this large only during a backlog.
	PageSize int
	// Standby is the pause while another process runs the projection, give or take a quarter. Default: 5 s.
	Standby time.Duration
	// Logger logs outages and tasks whose events do not fold. Default: [slog.Default].
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
	} {
		if number.n < 0 {
			faults = append(faults, fmt.Errorf("%s must not be negative, got %d", number.name, number.n))
		}
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
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Runner applies the events of the ledger to the built-in projection, as they are committed.
type Runner struct{ config Config }

// New returns a runner. It does not use the database yet.
func New(c Config) (*Runner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Runner{c.withDefaults()}, nil
}

// Run runs the projection until ctx is done, and returns nil within 5 s after that. It retries while the database is
// unavailable, and stands by while another process runs the projection. It returns an error only if it must not
// continue: [feed.IsRefusal] or [ledger.ErrNotMigrated].
func (r *Runner) Run(ctx context.Context) error {
	c := r.config
	found, leave := feed.Shared(c.DB, feed.ByService)
	defer leave()
	c.found = found
	return newFollower(c).run(ctx)
}
