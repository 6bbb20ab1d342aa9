package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/feed"
)

// Config of a [Projector].
type Config struct {
	// DB is the primary database. Two of its connections are in use at a time. Required.
	DB *pgxpool.Pool
	// PageSize is how many events one transaction applies at most. Default 1000.
	PageSize int
	// Standby is how long a projector that met another one at work waits before it looks again,
	// give or take a quarter. Default 5 seconds.
	Standby time.Duration
	// Logger hears of outages and of tasks whose events do not fold. Default: discard.
	Logger *slog.Logger
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.PageSize < 0 {
		faults = append(faults, fmt.Errorf("negative PageSize: %d", c.PageSize))
	}
	if c.Standby < 0 {
		faults = append(faults, fmt.Errorf("negative Standby: %s", c.Standby))
	}
	if len(faults) > 0 {
		return fmt.Errorf("projector config: %w", errors.Join(faults...))
	}
	return nil
}

// gather is how long events may wait for company: a page costs a transaction, however small it is.
const gather = 20 * time.Millisecond

// Projector applies the events of the ledger to a projection, as they are committed.
type Projector struct {
	config     Config
	projection Projection
}

// New returns a projector of the built-in projection, [Tasks]. It does not use the database yet.
func New(c Config) (*Projector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Standby == 0 {
		c.Standby = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Projector{config: c, projection: Tasks(c.Logger)}, nil
}

// Run applies events until ctx is done, and then returns nil. It goes on through outages of the
// database and stands by while another projector of the same name works. It returns an error
// only where it must not go on: [*feed.OriginError] and [ledger.ErrNotMigrated].
func (p *Projector) Run(ctx context.Context) error {
	log := p.config.Logger.With("projection", p.projection.Name())
	var backoff loop.Backoff
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			applied, err := p.follow(ctx)
			switch {
			case errors.Is(err, feed.ErrSuperseded):
				log.DebugContext(ctx, "another projector is at work; standing by")
				return loop.Jitter(p.config.Standby), nil
			case applied:
				backoff.Reset()
			}
			wait := backoff.Next()
			if p.stop(err) == nil && ctx.Err() == nil {
				log.WarnContext(ctx, "projector interrupted; trying again", "error", err, "in", wait)
			}
			return wait, p.stop(err)
		},
		Stop: p.stop,
	}.Run(ctx)
}

// stop returns the errors after which going on would do harm.
func (*Projector) stop(err error) error {
	var origin *feed.OriginError
	if errors.As(err, &origin) {
		return err
	}
	return pgerr.NotMigrated(err)
}

// follow opens the feed and applies its pages until something fails, reading one page ahead. It
// reports whether it applied any.
func (p *Projector) follow(ctx context.Context) (applied bool, err error) {
	reader, err := feed.Open(ctx, p.config.DB, p.projection.Name(),
		&feed.Options{Gather: gather, PageSize: p.config.PageSize, Logger: p.config.Logger})
	if err != nil {
		return false, err
	}
	pages := make(chan feed.Page)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			page, err := reader.Next(ctx)
			if err != nil {
				return err
			}
			select {
			case pages <- page:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	group.Go(func() error {
		for {
			select {
			case page := <-pages:
				if err := p.apply(ctx, page); err != nil {
					return err
				}
				applied = true
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	err = group.Wait()
	return applied, err
}

// begin makes commits that do not wait for the disk: a crash undoes tables and cursor together.
// What is read in the transaction is read by key or address; a plan made while a table was small
// must not walk it when it is large. What seems dear by that is not to be compiled. And as no plan
// is better for knowing the parameters, it is made once.
const begin = "begin isolation level read committed; set local synchronous_commit to off; " +
	"set local enable_seqscan to off; set local jit to off; set local plan_cache_mode to force_generic_plan"

// apply moves the cursor and the tables behind a page, or neither. The cursor comes first: a
// projector that has lost the page to another one learns it there and writes nothing more.
func (p *Projector) apply(ctx context.Context, page feed.Page) error {
	tx, err := p.config.DB.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return pgerr.Explain("begin", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
	if err := page.Advance(ctx, tx, nil); err != nil {
		return err
	}
	if err := p.projection.Apply(ctx, tx, page.Events); err != nil {
		return err
	}
	fault.Point("projector.applied")
	return pgerr.Explain("commit", tx.Commit(ctx))
}
