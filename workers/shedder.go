package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/overload_look.sql
var overloadLookSQL string

// pointShedding is a crash point: some of the tasks that are to go are discarded.
const pointShedding = "scheduler.shedding"

const (
	// shedEvery is the least time between two looks.
	shedEvery   = 200 * time.Millisecond
	shedBackoff = time.Second
	// maxShed is how many tasks of a kind one look discards.
	maxShed = 10_000
	// shedForget is how long a kind must not have been over its limit for its place to be found anew:
	// what went by meanwhile need not be read.
	shedForget = time.Minute
)

// shedder discards the oldest waiting tasks of the kinds whose limit says so ([ledger.DiscardOldest])
// until no more than the limit are left: oldest in the order of the feed, by the events that made
// them available.
//
// It goes by what the projector has counted, and by how far the projector had got when it did. If
// so many are too many there, the first so many of those that waited there are to go. Whoever of
// them has moved on since, by a worker or another shedder, has made room as well. So nobody discards
// more than there is too much, however late the projector is, and however many do it.
//
// Where the tasks that wait begin is found backwards from the newest event, as far back as it takes to
// meet all that wait; then the place moves on. What is finished is
// passed, twice at the most.
type shedder struct {
	scheduler *Scheduler
	places    map[ledger.Kind]*waitingFrom
}

// overLimit is a kind of which too many tasks wait.
type overLimit struct {
	kind         ledger.Kind
	waiting, max int64
	counted      counted
}

// run discards until ctx is done. Outages are logged: the next look makes up for them.
func (s *shedder) run(ctx context.Context) {
	_ = loop.Steps{ // it never stops by itself
		Step: func(ctx context.Context) (time.Duration, error) {
			begun := time.Now()
			err := s.pass(ctx)
			return max(shedEvery, time.Since(begun)), err
		},
		Failed: func(ctx context.Context, err error, in time.Duration) {
			s.scheduler.config.Logger.WarnContext(ctx, "cannot discard what waits beyond a limit; trying again", "error", err, "in", in)
		},
		Backoff: loop.Backoff{Min: shedBackoff, Max: shedBackoff},
	}.Run(ctx)
}

// pass looks at all kinds once.
func (s *shedder) pass(ctx context.Context) error {
	all, err := s.look(ctx)
	if err != nil {
		return err
	}
	var faults []error
	for _, o := range all {
		faults = append(faults, s.shed(ctx, o))
	}
	for kind, p := range s.places {
		if time.Since(p.over) > shedForget {
			delete(s.places, kind)
		}
	}
	return errors.Join(faults...)
}

// look returns the kinds of which too many tasks wait.
func (s *shedder) look(ctx context.Context) (all []overLimit, err error) {
	err = s.query(ctx, overloadLookSQL, nil, func(rows pgx.Rows) error {
		var o overLimit
		c := &o.counted
		err := rows.Scan((*string)(&o.kind), &o.waiting, &o.max, &c.n, &c.seen.snapshot, &c.seen.top, &c.seen.bound, &c.until, &c.after, &c.incarnation)
		all = append(all, o)
		return err
	})
	return all, err
}

// shed discards what is too much of a kind, or a part of it.
func (s *shedder) shed(ctx context.Context, o overLimit) error {
	p := s.places[o.kind]
	if p == nil || p.incarnation != o.counted.incarnation || p.edges[len(p.edges)-1].top > o.counted.seen.top {
		var err error
		if p, err = s.find(ctx, o); err != nil {
			return err
		}
		s.places[o.kind] = p
	}
	p.over = time.Now()
	if p.looked == o.counted.n {
		return nil // what was found then is gone, and not counted yet
	}
	oldest, err := s.oldest(ctx, o, p, min(o.waiting-o.max, maxShed))
	if err != nil {
		return err
	}
	if err := s.discard(ctx, o.kind, oldest); err != nil {
		return err
	}
	p.looked = o.counted.n
	return nil
}

// shedData is the data of the discarded events.
var shedData = json.RawMessage(`{"reason":"too many tasks of its kind wait"}`)

// discard discards those tasks that still stand where they were found.
func (s *shedder) discard(ctx context.Context, kind ledger.Kind, oldest []waiting) error {
	var requests []ledger.AppendRequest
	for _, w := range oldest {
		if !w.moved {
			requests = append(requests, ledger.AppendRequest{
				Key: ledger.Key{Kind: kind, BizID: w.id}, Expected: w.version, Type: ledger.EventDiscarded, Actor: "scheduler", Data: shedData,
			})
		}
	}
	config := s.scheduler.config
	discarded := 0
	var failed []error
	for len(requests) > 0 {
		group := requests[:min(len(requests), maxBatch)]
		requests = requests[len(group):]
		for _, r := range ledger.AppendEach(ctx, config.DB, group) {
			switch {
			case r.Err == nil:
				discarded++
			case !ledger.IsConflict(r.Err): // by whoever was first
				failed = append(failed, r.Err)
			}
		}
		fault.Point(pointShedding)
	}
	if discarded > 0 {
		config.Logger.WarnContext(ctx, "too many tasks waited: the oldest are discarded", "kind", string(kind), "tasks", discarded)
		if config.Discarded != nil {
			config.Discarded(kind, discarded)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d tasks of %s: %w", len(failed), kind, failed[0])
	}
	return nil
}

// query runs a statement with the scheduler's settings, in a transaction of its own.
func (s *shedder) query(ctx context.Context, sql string, args []any, row func(pgx.Rows) error) error {
	batch := &pgx.Batch{}
	batch.Queue(schedulerSettingsSQL, lockTimeout(firePatience), "on")
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := row(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return s.scheduler.config.DB.SendBatch(ctx, batch).Close()
}
