package alarm

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// DefaultInterval is the default of [Config].Interval.
const DefaultInterval = 5 * time.Second

// Config configures a [Watcher].
type Config struct {
	// DB is the primary database. Required. Each delivery opens a connection of its own, outside of the pool.
	DB *pgxpool.Pool
	// File contains the rules and the receivers. Required.
	File
	// Interval is the pause between two polls. Default: 5 s.
	Interval time.Duration
	// Retry is the policy for failed deliveries, after which the alarm is dead. Default: [Retry].
	Retry *ledger.RetryPolicy
	// Logger receives alarms, failed deliveries and outages. Default: [slog.Default].
	Logger *slog.Logger
}

// Retry is the default policy for failed deliveries: eight attempts within two hours. A dead alarm is no loss,
// because the next alarm reports the same news.
var Retry = ledger.RetryPolicy{Ladder: []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}}

// Validate reports every fault at once.
func (c Config) Validate() error {
	faults := []error{c.File.Validate()}
	if c.DB == nil {
		faults = append(faults, errors.New("alarm: DB is required"))
	}
	if c.Interval < 0 {
		faults = append(faults, fmt.Errorf("alarm: Interval must not be negative, got %s", c.Interval))
	}
	if c.Retry != nil {
		faults = append(faults, c.Retry.Validate())
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Rules = c.Rules.withDefaults()
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Retry == nil {
		c.Retry = &Retry
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
