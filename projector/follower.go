package projector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

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

// follower applies the feed to the tables of the built-in projection that are in use.
type follower struct {
	config    Config
	log       *slog.Logger
	tasks     *tasks
	known     *known
	lingering *lingering // lists lingering tasks, by the list that it reads from the cursor
	tags      tagHistory // adds the tags of earlier tasks
}

func newFollower(c Config) *follower {
	log := c.Logger.With("projection", TasksName)
	if c.PageSize == 0 {
		c.PageSize = tasksPage
	}
	t := newTasks(inUse, log)
	t.known = new(known)
	return &follower{config: c, log: log, tasks: t, known: t.known}
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
			switch {
			case errors.Is(err, feed.ErrSuperseded):
				f.log.DebugContext(ctx, "another process runs the projection; standing by")
				return loop.Jitter(f.config.Standby), nil
			case applied:
				backoff.Reset()
			}
			wait := backoff.Next()
			if mustStop(err) == nil && ctx.Err() == nil {
				f.log.WarnContext(ctx, "projector interrupted; trying again", "error", err, "retry_in", wait)
			}
			return wait, mustStop(err)
		},
		Stop: mustStop,
	}.Run(ctx)
}

// follow opens the feed and applies its pages until an error, reading up to two pages ahead. It reports whether it
// applied a page.
func (f *follower) follow(ctx context.Context) (applied bool, err error) {
	reader, err := feed.Open(ctx, f.config.DB, feed.ProjectorReader, &feed.Options{
		Gather: gather, Idle: idle, Follows: f.config.found,
		PageSize: f.config.PageSize, Logger: f.config.Logger,
	})
	if err != nil {
		return false, err
	}
	f.known.clear() // another projector may have changed the rows
	if f.lingering, err = newLingering(reader.Cursor(), f.known); err != nil {
		return false, err
	}
	if f.tags, err = openTagHistory(ctx, f.config.DB, reader.Cursor()); err != nil {
		return false, err
	}
	pages := make(chan feed.Page, 1)
	isWaiting := func() bool { return len(pages) > 0 }
	read := func(ctx context.Context) error {
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
	}
	apply := func(ctx context.Context) error {
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
	}
	err = loop.Together(ctx, read, apply)
	return applied, err
}

// apply advances the cursor and the tables by a page, with the next page of the list of lingering tasks and of earlier
// tags, or none of them. The cursor comes first: a process that has lost the page to another process fails there and
// writes nothing more.
func (f *follower) apply(ctx context.Context, page feed.Page) error {
	list, err := f.lingering.next(ctx, f.config.DB)
	if err != nil {
		return err
	}
	tags, err := f.tags.next(ctx, f.config.DB)
	if err != nil {
		return err
	}
	advance := func(tx pgx.Tx) error { return page.Advance(ctx, tx, markOf(list.place, tags.at)) }
	err = f.tasks.transact(ctx, f.config.DB, advance, func(tx pgx.Tx) error {
		if err := f.tasks.apply(ctx, tx, page.Events); err != nil {
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
	for !isWaiting() {
		list, err := f.lingering.next(ctx, f.config.DB)
		if err != nil || list.place == f.lingering.place {
			return err
		}
		if !list.kinds.IsEmpty() {
			err := pgx.BeginTxFunc(ctx, f.config.DB, pgx.TxOptions{BeginQuery: begin()},
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
		if f.tags.isWhole() || isWaiting() {
			return nil
		}
		tags, err := f.tags.next(ctx, f.config.DB)
		if err != nil {
			return err
		}
		if err := pgx.BeginTxFunc(ctx, f.config.DB, pgx.TxOptions{BeginQuery: begin()},
			func(tx pgx.Tx) error { return tags.rows.write(ctx, tx, tagsAddSQL) }); err != nil {
			return err
		}
		f.tags = tags.at
	}
	return nil
}
