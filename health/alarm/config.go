package alarm

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// DefaultLook is how often a watcher looks, if its [Config] does not say.
const DefaultLook = 5 * time.Second

// Config of a [Watcher].
type Config struct {
	// DB is the primary database. Required. Deliveries hold a connection each that is not of the pool.
	DB *pgxpool.Pool
	// File says what is worth an alarm and who gets it. Required.
	File
	// RelayLag and ProjectionLag say how old the oldest event is that is not published, or not
	// projected. Required if there is a limit for them; projector.Behind and outbox.ReadStatus know.
	RelayLag      func(context.Context) (time.Duration, error)
	ProjectionLag func(context.Context) (time.Duration, error)
	// Look is how often to look. Default 5 s.
	Look time.Duration
	// Retry says when a failed delivery is tried again, and after how many the alarm is dead.
	// Default [Retry].
	Retry *ledger.RetryPolicy
	// Logger hears of alarms and of what keeps them from being delivered. Nil: nobody.
	Logger *slog.Logger
}

// Retry is the default policy for failed deliveries: eight attempts within two hours. An alarm that
// is dead then is no loss: the next one tells the same and what is new.
var Retry = ledger.RetryPolicy{Ladder: []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}}

// Validate reports every fault at once.
func (c Config) Validate() error {
	faults := []error{c.File.Validate()}
	if c.DB == nil {
		faults = append(faults, errors.New("alarm: DB is required"))
	}
	if c.Rules.RelayLag != 0 && c.RelayLag == nil {
		faults = append(faults, errors.New("alarm: RelayLag is required where relay_lag is limited"))
	}
	if c.Rules.ProjectionLag != 0 && c.ProjectionLag == nil {
		faults = append(faults, errors.New("alarm: ProjectionLag is required where projection_lag is limited"))
	}
	if c.Look < 0 {
		faults = append(faults, errors.New("alarm: Look must not be negative"))
	}
	if c.Retry != nil {
		faults = append(faults, c.Retry.Validate())
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Rules = c.Rules.withDefaults()
	if c.Look == 0 {
		c.Look = DefaultLook
	}
	if c.Retry == nil {
		c.Retry = &Retry
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
