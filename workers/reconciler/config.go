package reconciler

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
)

// Config configures a [Reconciler].
type Config struct {
	// DB is the primary. One of its connections is in use at a time. Required.
	DB *pgxpool.Pool
	// NATS is the connection to the server of the stream. Required.
	NATS *nats.Conn
	// Every is the least time between the starts of two passes. A pass also takes at most a twentieth of the
	// time, unless it waits for NATS in vain. Default: 2 s.
	Every time.Duration
	// Grace is how long a task must have been available before it can count as lost. Default: 5 s.
	Grace time.Duration
	// Logger receives every task that was made available again, and outages. Default: [slog.Default].
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("NATS is required"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{name: "Every", value: c.Every}, {name: "Grace", value: c.Grace}} {
		if d.value < 0 {
			faults = append(faults, fmt.Errorf("%s must be at least 0s, got %s", d.name, d.value))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("reconciler: %w", errors.Join(faults...))
	}
	return nil
}
