package workers

import (
	"context"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgquery"
)

// setMark remembers a moment and a transaction id.
func (s *Scheduler) setMark(ctx context.Context) error {
	var k mark
	var xid string
	if err := s.query(ctx, firePatience, schedulerMarkSQL, nil, &k.at, &xid); err != nil {
		return err
	}
	var err error
	if k.xid, err = strconv.ParseUint(xid, 10, 64); err != nil {
		return err
	}
	s.marks.remember(k)
	s.markAt, s.worked = time.Now().Add(markEvery), false
	return nil
}

// look returns when the first timer is due of those that are not set aside, the zero time if none
// waits. It looks from safe on, now and then from the beginning.
func (s *Scheduler) look(ctx context.Context) (time.Time, error) {
	from, all := s.marks.safe, time.Now().After(s.lookAllAt)
	if all {
		from = time.Time{}
	}
	var lowest, free *time.Time
	var clock time.Time
	var xmin string
	begun := time.Now()
	if err := s.query(ctx, firePatience, timersLowestSQL, []any{pgquery.Time(from), s.aside.literal()}, &clock, &xmin, &lowest, &free); err != nil {
		return time.Time{}, err
	}
	took := time.Since(begun)
	s.lookAt = time.Now().Add(lookShare * took)
	if all {
		s.lookAllAt = time.Now().Add(max(lookAllEvery, lookAllShare*took))
	}
	if s.saw(clock) {
		return clock, nil // whatever is due: the next look is at everything
	}
	running, err := strconv.ParseUint(xmin, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	if lowest == nil {
		lowest = new(time.Time)
	}
	if free == nil {
		free = new(time.Time)
	}
	if all && !lowest.IsZero() && lowest.Before(s.marks.safe) {
		s.config.Logger.WarnContext(ctx, "a timer was found where none should be: was the clock set?", "due_at", *lowest)
		s.marks.reset()
	}
	s.marks.looked(*lowest, *free, running)
	return *free, nil
}

// saw takes in the database's clock. It reports whether it was set back.
func (s *Scheduler) saw(clock time.Time) (back bool) {
	back = clock.Before(s.clock)
	if back {
		s.marks.reset()
		s.lookAt, s.lookAllAt = time.Time{}, time.Time{}
	}
	s.clock = clock
	return back
}
