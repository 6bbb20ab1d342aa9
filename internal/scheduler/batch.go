package scheduler

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

//go:embed sql/timers_fire.sql
var timersFireSQL string

// The crash points of firing, for internal/fault.
const (
	pointFiring = "scheduler.firing" // timers are about to be fired
	pointFired  = "scheduler.fired"  // timers are fired, and their events are committed
)

const (
	// maxBatch is the maximum number of timers in a batch.
	maxBatch = 1000
	// batchPatience is how long a batch waits for a task that an open transaction has appended to.
	batchPatience = 50 * time.Millisecond
)

// Batch is the outcome of one batch of timers.
type Batch struct {
	Timers   int           // timers in the batch; those whose task had moved on appended nothing
	Released int           // released events appended
	Expired  int           // expired events appended
	Late     time.Duration // how long the first timer had been due, by the database's clock
}

// batchResult is a committed batch, and where to continue.
type batchResult struct {
	Batch
	elsewhere    int       // of a deferred group: timers that another scheduler is firing
	next         time.Time // timers before it are fired, or another scheduler is firing them
	clockSetBack bool      // the database's clock was set back, so next is invalid
}

// fireNext polls whether timers are due, and fires a batch of them. It returns how long to wait for the next.
func (s *Scheduler) fireNext(ctx context.Context) (time.Duration, error) {
	if time.Now().After(s.pollAt) {
		first, err := s.poll(ctx)
		if err != nil {
			return 0, err
		}
		if first.IsZero() || first.After(s.clock) {
			return s.until(first), nil
		}
	}
	f, err := s.fire(ctx, pgquery.Time(s.horizon.next), nil)
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		return s.deferBatch(ctx)
	}
	if err != nil {
		return 0, err
	}
	if !f.clockSetBack {
		s.horizon.next = f.next
	}
	s.isBehind = f.Timers == maxBatch
	if f.Timers == 0 {
		return maxIdle, nil
	}
	return 0, nil
}

// fire fires a batch of the timers that are due from a moment on, without deferred tasks. If only is not nil, it fires
// these timers instead.
func (s *Scheduler) fire(ctx context.Context, from string, only []dueTask) (batchResult, error) {
	fault.Point(pointFiring)
	except, patience := s.deferred.literal(), batchPatience
	if only != nil {
		except, patience = "{}", deferredPatience
	}
	var f batchResult
	var kept int
	var clock, first, last time.Time
	var dues, kinds, ids pgarray.Builder
	for _, t := range only {
		dues.Add(pgquery.Time(t.at))
		kinds.Add(string(t.key.Kind))
		ids.Add(string(t.key.BizID))
	}
	args := []any{
		from, int64(maxBatch), s.releasable, s.expirable, except, dues.String(), kinds.String(), ids.String(),
	}
	err := s.execute(ctx, patience, timersFireSQL, args,
		pgquery.Micros(&clock), &f.Timers, &f.Released, &f.Expired, &kept, &f.elsewhere,
		pgquery.Micros(&first), pgquery.Micros(&last))
	if err != nil {
		return f, err
	}
	fault.Point(pointFired)
	if f.Timers > 0 { // the next poll may be later
		s.hasFired = true
		s.awaiting.wanted.ask()
		s.discarder.wanted.ask()
	}
	f.clockSetBack = s.setClock(clock)
	switch {
	case kept > 0:
		f.next = first
	case f.Timers == maxBatch:
		f.next = last
	default:
		f.next = clock
	}
	if !first.IsZero() && !f.clockSetBack {
		f.Late = clock.Sub(first)
	}
	if after := s.config.Hook.AfterBatch; f.Timers > 0 && after != nil {
		after(ctx, f.Batch)
	}
	return f, nil
}
