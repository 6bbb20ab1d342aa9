package alarm

import (
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// defaultInterval is the pause between two polls.
const defaultInterval = 5 * time.Second

// Config configures a [Watcher].
type Config struct {
	// DB is the primary database. Required. Each delivery opens a connection of its own, outside of the pool.
	DB *pgxpool.Pool
	// File contains the rules and the receivers. Required.
	File
	// Logger receives alarms, failed deliveries and outages. Default: [slog.Default].
	Logger *slog.Logger
	// Reported is called after each pass that leaves no news to report, with the time when it began. Default: no call.
	Reported func(begun time.Time)

	interval time.Duration       // between two polls; 0: the default
	retry    *ledger.RetryPolicy // for failed deliveries; nil: the default
}

// defaultRetry is the policy for failed deliveries: eight attempts within two hours. A dead alarm is no loss, because
// the next alarm reports the same news.
var defaultRetry = ledger.RetryPolicy{Ladder: []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}}

// Validate reports every fault at once.
func (c Config) Validate() error {
	faults := []error{c.File.Validate()}
	if c.DB == nil {
		faults = append(faults, errors.New("alarm: DB is required"))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Rules = c.Rules.withDefaults()
	if c.interval == 0 {
		c.interval = defaultInterval
	}
	if c.retry == nil {
		c.retry = &defaultRetry
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
