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
	// PageSize is the maximum number of events that one transaction applies. Default: 1000.
	PageSize int
	// Standby is the pause of a projector that finds another one running, give or take a quarter. Default: 5
	// s.
	Standby time.Duration
	// Logger logs outages and tasks whose events do not fold. Default: disabled.
	Logger *slog.Logger
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.PageSize < 0 {
		faults = append(faults, fmt.Errorf("PageSize must not be negative, got %d", c.PageSize))
	}
	if c.Standby < 0 {
		faults = append(faults, fmt.Errorf("Standby must not be negative, got %s", c.Standby))
	}
	if len(faults) > 0 {
		return fmt.Errorf("projector: invalid Config: %w", errors.Join(faults...))
	}
	return nil
}

// gather is the time that events may wait for others: each page costs a transaction, however small it is.
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

// Run applies events until ctx is done, and then returns nil. It retries while the database is unavailable
// and stands by while another projector of the same name runs. It returns an error only if it must not
// continue: [*feed.OriginError] or [ledger.ErrNotMigrated].
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

// stop returns err if continuing after it would do harm, and nil otherwise.
func (*Projector) stop(err error) error {
	var origin *feed.OriginError
	if errors.As(err, &origin) {
		return err
	}
	return pgerr.NotMigrated(err)
}

// follow opens the feed and applies its pages until an error, reading one page ahead. It reports whether it
// applied a page.
func (p *Projector) follow(ctx context.Context) (applied bool, err error) {
	reader, err := feed.Open(ctx, p.config.DB, p.projection.Name(),
		&feed.Options{Gather: gather, PageSize: p.config.PageSize, Logger: p.config.Logger})
	if err != nil {
		return false, err
	}
	l, err := newLingering(reader.Cursor())
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
				if err := p.apply(ctx, page, l); err != nil {
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

// begin starts the transaction of a page. Its commit does not wait for the disk: a crash undoes tables and
// cursor together. The transaction reads rows by key or address, so sequential scans are off: a plan made
// while a table was small must not scan it when it is large. This raises estimated costs, so JIT compilation
// is off. One generic plan is enough, since no plan depends on the parameters.
const begin = "begin isolation level read committed; set local synchronous_commit to off; " +
	"set local enable_seqscan to off; set local jit to off; set local plan_cache_mode to force_generic_plan"

// apply advances the cursor and the tables by a page, or neither. The cursor comes first: a projector that
// has lost the page to another one fails there and writes nothing more.
func (p *Projector) apply(ctx context.Context, page feed.Page, l *lingering) error {
	list, err := l.next(ctx, p.config.DB)
	if err != nil {
		return err
	}
	tx, err := p.config.DB.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return pgerr.Explain("begin", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // no effect after the commit
	if err := page.Advance(ctx, tx, list.mark()); err != nil {
		return err
	}
	if err := p.projection.Apply(ctx, tx, page.Events); err != nil {
		return err
	}
	if err := list.write(ctx, tx); err != nil {
		return err
	}
	fault.Point("projector.applied")
	if err := tx.Commit(ctx); err != nil {
		return pgerr.Explain("commit", err)
	}
	l.place, l.applied = list.place, page.Place().Seen
	return nil
}
