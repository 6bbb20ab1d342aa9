package scheduler

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/timers_lowest.sql
	timersLowestSQL string
	//go:embed sql/clock_sample.sql
	clockSampleSQL string
)

const (
	// maxIdle is the longest wait between two steps while there are timers or tasks that wait for predecessors, and for
	// quietAfter after the last of them. Then it is maxQuiet.
	maxIdle    = 100 * time.Millisecond
	maxQuiet   = 250 * time.Millisecond
	quietAfter = 10 * time.Second
	// pollShare: at most one part in pollShare of the time is spent on polls, which step over dead index entries. No
	// pause exceeds maxPollRest, because only a poll finds a timer that becomes visible after it was due.
	pollShare   = 11
	maxPollRest = time.Second
	// pollAllEvery is how often a poll begins at the low end of the index, if that is cheap (pollAllShare).
	// It finds nothing unless a clock was set, or another program has written into the table.
	pollAllEvery   = time.Minute
	pollAllShare   = 1000
	maxPollAllRest = 10 * time.Minute
	sampleEvery    = time.Second
	slowPoll       = time.Second // logged
)

// sampleClock adds a sample to the horizon.
func (s *Scheduler) sampleClock(ctx context.Context) error {
	var k sample
	var xid string
	if err := s.execute(ctx, batchPatience, clockSampleSQL, nil, pgquery.Micros(&k.at), &xid); err != nil {
		return err
	}
	var err error
	if k.xid, err = strconv.ParseUint(xid, 10, 64); err != nil {
		return err
	}
	s.horizon.add(k)
	s.sampleAt, s.hasFired = time.Now().Add(sampleEvery), false
	return nil
}

// poll returns when the first timer is due whose task is not deferred, or the zero time if no such timer exists. It
// reads the index from horizon.safe, and sometimes from its low end. It asks the other loops for a pass if they have
// work.
func (s *Scheduler) poll(ctx context.Context) (time.Time, error) {
	from, all := s.horizon.safe, time.Now().After(s.pollAllAt)
	if all {
		from = time.Time{}
	}
	var withLimits int64
	if time.Now().After(s.limitsAt) {
		withLimits = 1
		s.limitsAt = time.Now().Add(discardEvery)
	}
	var hasAwaiting, hasOverload bool
	var clock, first, firstFree time.Time
	var server, xmin string
	begun := time.Now()
	args := []any{pgquery.Time(from), s.deferred.literal(), withLimits}
	if err := s.execute(ctx, batchPatience, timersLowestSQL, args, &server, pgquery.Micros(&clock), &xmin,
		pgquery.Micros(&first), pgquery.Micros(&firstFree), &hasAwaiting, &hasOverload); err != nil {
		return time.Time{}, err
	}
	if hasAwaiting {
		s.awaiting.wanted.ask()
	}
	if hasOverload {
		s.discarder.wanted.ask()
	}
	if !first.IsZero() {
		s.obsolete.wanted.ask()
	}
	cost := time.Since(begun)
	if !first.IsZero() || hasAwaiting || hasOverload {
		s.activeAt = time.Now()
	}
	if cost > slowPoll {
		s.config.Logger.WarnContext(ctx, "a poll of the timers was slow: the database, the network or this machine is",
			"waited", cost)
	}
	s.pollAt = time.Now().Add(loop.Rest(cost, pollShare, maxPollRest))
	if all {
		s.pollAllAt = time.Now().Add(max(pollAllEvery, loop.Rest(cost, pollAllShare, maxPollAllRest)))
	}
	if isOther := s.server != "" && s.server != server; isOther {
		s.server, s.clock = server, clock
		s.forget()
		return clock, nil // fire a batch; the next poll begins at the low end
	}
	s.server = server
	if s.setClock(clock) {
		return clock, nil // fire a batch; the next poll begins at the low end
	}
	oldest, err := strconv.ParseUint(xmin, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	if all && !first.IsZero() && first.Before(s.horizon.safe) {
		s.config.Logger.WarnContext(ctx, "a timer is due before the horizon: check whether the clock was set",
			"due_at", first)
		s.horizon.reset()
	}
	s.horizon.advance(first, firstFree, oldest)
	return firstFree, nil
}

// until returns how long to wait for a timer that is due at first; the zero time means no timer.
func (s *Scheduler) until(first time.Time) time.Duration {
	if first.IsZero() && time.Since(s.activeAt) > quietAfter {
		return maxQuiet
	}
	if first.IsZero() {
		return maxIdle
	}
	return min(maxIdle, max(time.Millisecond, first.Sub(s.clock)))
}

// setClock stores the database's clock. It reports whether the clock was set back; then everything concluded from
// earlier readings is forgotten.
func (s *Scheduler) setClock(clock time.Time) (isSetBack bool) {
	isSetBack = clock.Before(s.clock)
	if isSetBack {
		s.forget()
	}
	s.clock = clock
	return isSetBack
}

// forget makes all timers polled again, because some may be due before the horizon.
func (s *Scheduler) forget() {
	s.horizon.reset()
	s.pollAt, s.pollAllAt = time.Time{}, time.Time{}
}
