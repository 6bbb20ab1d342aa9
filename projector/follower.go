package projector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
)

// Each page costs a transaction of ten statements, however small it is. So events wait for others.
const (
	gather = 100 * time.Millisecond // after a page
	idle   = 250 * time.Millisecond // at most, after a time without events
)

// tasksPage is the size of a page of the built-in projection. During a backlog, larger pages let it keep up with the
// relay: each statement of a page waits for its turn on a busy processor.
const tasksPage = 4000

// follower applies the feed to the tables of one projection that are in use.
type follower struct {
	config Config
	reader string
	log    *slog.Logger
	target target
	// begin prepares the tables before the feed is opened, and check examines them after that: a process that replaces
	// them in between moves the cursor. watch returns when follow must begin again. Nil: not needed.
	begin, check, watch func(context.Context) error
	// resume applies events outside of the feed, in the order of the cursor. Nil: none.
	resume func(context.Context, *feed.Feed) error
	// lists reports whether the follower lists lingering tasks, by the list that it reads from the cursor, and adds the
	// tags of earlier tasks.
	lists     bool
	known     *known
	lingering *lingering
	tags      tagHistory
	// stop returns err if the follower must not continue.
	stop func(error) error
	// wait returns how long to wait after an error; false: by the backoff.
	wait func(error) (time.Duration, bool)
}

func newTasksFollower(c Config) *follower {
	log := c.Logger.With("projection", TasksName)
	if c.PageSize == 0 {
		c.PageSize = tasksPage
	}
	t := newTasks(inUse, log)
	t.known = new(known)
	return &follower{
		config: c, reader: feed.ProjectorReader, log: log, target: t, lists: true, known: t.known, stop: mustStop,
		wait: func(error) (time.Duration, bool) { return 0, false },
	}
}

// mustStop returns err if continuing after it would do harm, and nil otherwise.
func mustStop(err error) error {
	if feed.IsRefusal(err) {
		return err
	}
	return pgerr.NotMigrated(err)
}

func (f *follower) run(ctx context.Context) error {
	var backoff loop.Backoff
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			applied, err := f.follow(ctx)
			wait, ok := f.wait(err)
			switch {
			case errors.Is(err, feed.ErrSuperseded):
				f.log.DebugContext(ctx, "another process runs the projection; standing by")
				return loop.Jitter(f.config.Standby), nil
			case ok:
				return wait, nil
			case applied:
				backoff.Reset()
			}
			wait = backoff.Next()
			if f.stop(err) == nil && ctx.Err() == nil {
				f.log.WarnContext(ctx, "projector interrupted; trying again", "error", err, "retry_in", wait)
			}
			return wait, f.stop(err)
		},
		Stop: f.stop,
	}.Run(ctx)
}

// follow opens the feed and applies its pages until an error, reading up to two pages ahead. It reports whether it
// applied a page.
func (f *follower) follow(ctx context.Context) (applied bool, err error) {
	if f.begin != nil {
		if err := f.begin(ctx); err != nil {
			return false, err
		}
	}
	reader, err := feed.Open(ctx, f.config.DB, f.reader, &feed.Options{
		Gather: gather, Idle: idle, Follows: f.config.found,
		PageSize: f.config.PageSize, Logger: f.config.Logger,
	})
	if err == nil && f.check != nil {
		err = f.check(ctx)
	}
	if err == nil && f.resume != nil {
		err = f.resume(ctx, reader)
	}
	if err != nil {
		return false, err
	}
	if f.lists {
		f.known.clear() // another projector may have changed the rows
		if f.lingering, err = newLingering(reader.Cursor(), f.known); err != nil {
			return false, err
		}
		if f.tags, err = openTagHistory(ctx, f.config.DB, reader.Cursor()); err != nil {
			return false, err
		}
	}
	pages := make(chan feed.Page, 1)
	isWaiting := func() bool { return len(pages) > 0 }
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
		idle := time.NewTicker(max(lingerAfter, 10*time.Millisecond))
		defer idle.Stop()
		for {
			select {
			case <-idle.C:
				if err := f.tagIdle(ctx, isWaiting); err != nil {
					return err
				}
			case page := <-pages:
				if err := f.apply(ctx, page); err != nil {
					if errors.Is(err, loop.ErrAbandoned) {
						f.log.ErrorContext(ctx, "Apply did not return after its context was done, or the database "+
							"does not answer; the events are applied again", "waited", loop.Grace)
					}
					return err
				}
				applied = true
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := f.listIdle(ctx, isWaiting); err != nil {
				return err
			}
		}
	})
	if f.watch != nil {
		group.Go(func() error { return f.watch(ctx) })
	}
	err = group.Wait()
	return applied, err
}

// apply advances the cursor and the tables by a page, or neither. The cursor comes first: a process that has lost the
// page to another process fails there and writes nothing more.
func (f *follower) apply(ctx context.Context, page feed.Page) error {
	if f.lingering != nil {
		return f.applyAndList(ctx, page)
	}
	return transact(ctx, f.config.DB, f.target, func(tx pgx.Tx) error {
		return page.Advance(ctx, tx, nil)
	}, page.Events)
}

// applyAndList is apply with the next page of the list of lingering tasks, and of earlier tags.
func (f *follower) applyAndList(ctx context.Context, page feed.Page) error {
	list, err := f.lingering.next(ctx, f.config.DB)
	if err != nil {
		return err
	}
	tags, err := f.tags.next(ctx, f.config.DB)
	if err != nil {
		return err
	}
	advance := func(tx pgx.Tx) error { return page.Advance(ctx, tx, markOf(list.place, tags.at)) }
	err = inTransaction(ctx, f.config.DB, f.target, advance, func(tx pgx.Tx) error {
		if err := f.target.apply(ctx, tx, page.Events); err != nil {
			return err
		}
		if err := tags.rows.write(ctx, tx, tagsAddSQL); err != nil {
			return err
		}
		return list.write(ctx, tx)
	})
	if err == nil {
		f.tags = tags.at
		f.lingering.advance(page, list.place)
		page.Release()
	}
	return err
}

// listIdle lists lingering tasks without a page, because an idle ledger brings none. It stops when a page waits. The
// place stays in memory until the next page: listing more tasks than necessary does no harm.
func (f *follower) listIdle(ctx context.Context, isWaiting func() bool) error {
	for f.lingering != nil && !isWaiting() {
		list, err := f.lingering.next(ctx, f.config.DB)
		if err != nil || list.place == f.lingering.place {
			return err
		}
		if !list.kinds.IsEmpty() {
			err := pgx.BeginTxFunc(ctx, f.config.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
				func(tx pgx.Tx) error { return list.write(ctx, tx) })
			if err != nil {
				return err
			}
		}
		f.lingering.place = list.place
	}
	return nil
}

// tagIdle adds earlier tags without a page, until one waits. The place stays in memory until the next page: a tag may
// be added again.
func (f *follower) tagIdle(ctx context.Context, isWaiting func() bool) error {
	for range tagPagesIdle {
		if !f.lists || f.tags.isWhole() || isWaiting() {
			return nil
		}
		tags, err := f.tags.next(ctx, f.config.DB)
		if err != nil {
			return err
		}
		if err := pgx.BeginTxFunc(ctx, f.config.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
			func(tx pgx.Tx) error { return tags.rows.write(ctx, tx, tagsAddSQL) }); err != nil {
			return err
		}
		f.tags = tags.at
	}
	return nil
}
