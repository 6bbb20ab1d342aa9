package scheduler

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/overloads.sql
var overloadsSQL string

// pointDiscarding is a crash point: some tasks above a limit are discarded.
const pointDiscarding = "scheduler.discarding"

const (
	// discardEvery is the least time between two passes.
	discardEvery   = 200 * time.Millisecond
	discardShare   = 2 // passes take at most half of the time, unless the pause exceeds maxDiscardRest
	maxDiscardRest = time.Second
	discardBackoff = time.Second
	// maxDiscarded is how many tasks of a kind one pass discards at most.
	maxDiscarded = 10_000
	// backlogExpiry is how long the backlog of a kind is remembered after the kind was last over its limit. Later it
	// is cheaper to find it again than to read the events in between.
	backlogExpiry = time.Minute
	// discarderLease is the time after which another scheduler replaces a lost discarder.
	discarderLease = 5 * time.Second
)

// discarder discards the oldest waiting tasks of the kinds with the policy [ledger.DiscardOldest], until
// the limit is met. A task is as old as the event that made it available, in the order of the feed.
//
// It uses the projector's count and the place of that count. If n tasks were too many there, it discards the first n
// that waited there. A task among them that has moved on since, because of a worker or another discarder, has made
// room as well. So it never discards more tasks than were too many, however late the projector is and however many
// schedulers run.
//
// Only the holder of a lease discards: two discarders would append to the same tasks.
//
// The goroutine of run uses it.
type discarder struct {
	config   Config
	backlogs map[ledger.Kind]*backlog
	wanted   request
	holder   string    // of the lease
	heldAt   time.Time // when the lease was last taken or extended; zero: this scheduler does not hold it
}

// overload is a kind with too many waiting tasks.
type overload struct {
	kind         ledger.Kind
	waiting, max int64
	counted      progress // when waiting was counted
}

// run discards until ctx is done. It logs errors, and retries.
func (d *discarder) run(ctx context.Context) {
	_ = loop.Steps{ // without Stop it returns nil
		Step: func(ctx context.Context) (time.Duration, error) {
			d.wanted.await(ctx, unasked)
			begun := time.Now()
			err := d.pass(ctx)
			if errors.Is(err, errLocked) {
				d.config.Logger.DebugContext(ctx, "tasks above a limit are in use; trying again", "error", err)
				return discardBackoff, nil
			}
			return max(discardEvery, loop.Rest(time.Since(begun), discardShare, maxDiscardRest)), err
		},
		Failed: func(ctx context.Context, err error, in time.Duration) {
			d.config.Logger.WarnContext(
				ctx, "cannot discard tasks above a limit; retrying", "error", err, "retry_in", in,
			)
		},
		Backoff: loop.Backoff{Min: discardBackoff, Max: discardBackoff},
	}.Run(ctx)
	if !d.heldAt.IsZero() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardBackoff)
		defer cancel()
		_ = lease.Discarder.Yield(ctx, d.config.DB, d.holder) // else it expires
	}
}

// errOther means that a pass took so long that another scheduler took the lease.
var errOther = errors.New("another scheduler holds the discarder's lease")

// errLocked means that a pass met only locks of open transactions, for example of a worker that has appended to a
// task. It is normal.
var errLocked = errors.New("an open transaction has locked them")

// holds reports whether this scheduler holds the discarder's lease. It takes or extends the lease.
func (d *discarder) holds(ctx context.Context) (bool, error) {
	begun := time.Now()
	if !d.heldAt.IsZero() && begun.Sub(d.heldAt) < discarderLease/2 {
		return true, nil
	}
	d.heldAt = time.Time{}
	// This goes on after ctx ends, so that run yields a lease that is granted during a stop.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discarderLease/2)
	defer cancel()
	ok, err := lease.Discarder.Take(ctx, d.config.DB, d.holder, discarderLease)
	if ok && err == nil {
		d.heldAt = begun
	}
	return ok, err
}

// pass discards the tasks above the limits of all kinds, once, if this scheduler holds the lease.
func (d *discarder) pass(ctx context.Context) error {
	overloads, err := d.readOverloads(ctx)
	if err != nil || len(overloads) == 0 {
		return err
	}
	if ok, err := d.holds(ctx); !ok {
		return err
	}
	return d.relieveAll(ctx, overloads)
}

// relieveAll discards the tasks above the limits of kinds.
func (d *discarder) relieveAll(ctx context.Context, overloads []overload) error {
	var faults, locked []error
	for _, o := range overloads {
		if err := d.relieve(ctx, o); pgerr.Is(err, pgerr.LockNotAvailable) {
			locked = append(locked, fmt.Errorf("%w: %w", errLocked, err))
		} else {
			faults = append(faults, err)
		}
	}
	for kind, l := range d.backlogs {
		if time.Since(l.overAt) > backlogExpiry {
			delete(d.backlogs, kind)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return errors.Join(locked...)
}

// readOverloads returns the kinds with too many waiting tasks.
func (d *discarder) readOverloads(ctx context.Context) (all []overload, err error) {
	err = d.query(ctx, overloadsSQL, nil, func(rows pgx.Rows) error {
		var o overload
		c := &o.counted
		columns := append([]any{(*string)(&o.kind), &o.waiting, &o.max, &c.row}, c.place.Columns()...)
		err := rows.Scan(append(columns, &c.incarnation)...)
		all = append(all, o)
		return err
	})
	return all, err
}

// relieve discards the tasks of a kind above its limit, or a part of them.
func (d *discarder) relieve(ctx context.Context, o overload) error {
	l := d.backlogs[o.kind]
	if l == nil || !l.isBefore(o.counted) {
		var err error
		if l, err = d.find(ctx, o); err != nil {
			return err
		}
		d.backlogs[o.kind] = l
	}
	l.overAt = time.Now()
	if l.relievedRow == o.counted.row {
		return nil // the excess of this count is already discarded
	}
	oldest, err := d.oldest(ctx, o, l, min(o.waiting-o.max, maxDiscarded))
	if err != nil {
		return err
	}
	if err := d.discard(ctx, o.kind, oldest); err != nil {
		return err
	}
	l.relievedRow = o.counted.row
	return nil
}

// discardedData is the data of the discarded events.
var discardedData = json.RawMessage(`{"reason":"too many tasks of its kind wait"}`)

// discard discards the tasks that have not moved on.
func (d *discarder) discard(ctx context.Context, kind ledger.Kind, oldest []waitingTask) error {
	var requests []ledger.AppendRequest
	for _, t := range oldest {
		if !t.hasMoved {
			requests = append(requests, ledger.AppendRequest{
				Key: ledger.Key{Kind: kind, BizID: t.id}, Expected: t.version,
				Type: ledger.EventDiscarded, Actor: "scheduler", Data: discardedData,
			})
		}
	}
	discarded := 0
	var failed, locked []error
	for group := range slices.Chunk(requests, ledger.AppendBatch) {
		if ok, err := d.holds(ctx); !ok {
			return errors.Join(err, errOther)
		}
		for _, r := range ledger.AppendEach(ctx, d.config.DB, group) {
			switch {
			case r.Err == nil:
				discarded++
			case pgerr.Is(r.Err, pgerr.LockNotAvailable):
				locked = append(locked, r.Err)
			case !ledger.IsConflict(r.Err):
				failed = append(failed, r.Err)
			}
		}
		fault.Point(pointDiscarding)
	}
	if discarded > 0 {
		d.config.Logger.WarnContext(ctx, "too many tasks wait; the oldest were discarded",
			"kind", string(kind), "tasks", discarded)
		if after := d.config.Hook.AfterDiscard; after != nil {
			after(ctx, kind, discarded)
		}
	}
	if failed = append(failed, locked...); len(failed) > 0 { // the first error decides the log line
		return fmt.Errorf("discard %d tasks of %s: %w", len(failed), kind, failed[0])
	}
	return nil
}

// query runs a statement with the scheduler's settings, in a transaction of its own.
func (d *discarder) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(batchPatience), "on")
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return d.config.DB.SendBatch(ctx, batch).Close()
}
