package scheduler

import (
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config configures a [Scheduler].
type Config struct {
	// DB is the primary. At most three of its connections are in use at a time, and four while tasks wait for others.
	// Required.
	DB *pgxpool.Pool
	// Logger receives outages, due tasks that an open transaction locks, and discarded tasks. Default: [slog.Default].
	Logger *slog.Logger
	// Hook is called after actions, for metrics. Default: disabled.
	Hook Hook
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	if c.DB == nil {
		return errors.New("scheduler: DB is required")
	}
	return nil
}
