package archiver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

// actor is the actor of the batches of a [Service].
const actor = "archiver"

// rest is [Options].Rest of a [Service]: tasks that are old may stay some time longer, and others must not wait. So it
// takes a tenth of a core: see BenchmarkLoad.
const rest = 9

// The shortest and the longest time between two runs of a [Service].
const (
	minEvery = 10 * time.Second
	maxEvery = time.Hour
)

// Config configures a [Service].
type Config struct {
	// DB is the database. Its login needs the role archiver. Required.
	DB *pgxpool.Pool
	// After is how long ago a task must have ended, except tasks of kinds with a [Setting]. Required.
	After time.Duration
	// Files stores the events. Default: the events are in no file.
	Files Files
	// Logger receives the results of runs. Default: [slog.Default].
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("archiver: DB is required"))
	}
	if c.After <= 0 {
		faults = append(faults, errors.New("archiver: After must be positive"))
	}
	return errors.Join(faults...)
}

// Service archives tasks at intervals. Several processes may run one.
type Service struct{ config Config }

// New returns a service. It returns the error of [Config.Validate].
func New(c Config) (*Service, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Service{c}, nil
}

// every returns the time between two runs: a hundredth of the time for which tasks stay.
func (s *Service) every() time.Duration { return min(max(s.config.After/100, minEvery), maxEvery) }

// Run archives tasks until ctx is done, and then returns nil. It logs errors, and retries.
func (s *Service) Run(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) { return s.every(), s.archive(ctx) },
		Failed: func(ctx context.Context, err error, in time.Duration) {
			s.config.Logger.WarnContext(ctx, "cannot archive tasks; retrying", "error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// archive archives the tasks of all kinds: first of kinds without a setting.
func (s *Service) archive(ctx context.Context) error {
	settings, err := Settings(ctx, s.config.DB)
	if err != nil {
		return err
	}
	var except []ledger.Kind
	for _, one := range settings {
		except = append(except, one.Kind)
	}
	err = s.run(ctx, Options{OlderThan: s.config.After, Except: except})
	for _, one := range settings {
		if !one.IsForever {
			err = errors.Join(err, s.run(ctx, Options{OlderThan: one.Keep, Kinds: []ledger.Kind{one.Kind}}))
		}
	}
	return err
}

func (s *Service) run(ctx context.Context, o Options) error {
	o.Rest = rest
	o.Files, o.Actor, o.Reason = s.config.Files, actor, "ended more than "+o.OlderThan.String()+" ago"
	r, err := Run(ctx, s.config.DB, o)
	if r.Tasks > 0 {
		s.config.Logger.InfoContext(ctx, "tasks archived", "tasks", r.Tasks, "before", r.Cutoff)
	}
	if r.Held > 0 {
		s.config.Logger.WarnContext(ctx, "a reader holds finished tasks in the tables", "tasks", r.Held,
			"reader", r.HeldBy)
	}
	return err
}
