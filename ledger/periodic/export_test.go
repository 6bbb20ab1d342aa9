package periodic

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Runner is what [Run] runs.
type Runner = runner

// NewRunner returns a runner that was not started.
func NewRunner(db *pgxpool.Pool, log *slog.Logger) *Runner { return newRunner(db, log) }

// Run is [Run] with this runner.
func (r *Runner) Run(ctx context.Context) error { return r.run(ctx) }

// SetClock adds an offset to the database's clock of r.
func (r *Runner) SetClock(offset time.Duration) { r.clock = offset }

// Pass fires all schedules that are due.
func (r *Runner) Pass(ctx context.Context) (time.Duration, error) { return r.pass(ctx) }
