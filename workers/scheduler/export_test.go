package scheduler

import (
	"context"
	"time"
)

// Statements are those of this package, by file name.
var Statements = map[string]string{
	"settings.sql":      settingsSQL,
	"clock_sample.sql":  clockSampleSQL,
	"timers_due.sql":    timersDueSQL,
	"timers_fire.sql":   timersFireSQL,
	"timers_lowest.sql": timersLowestSQL,
	"timers_status.sql": timersStatusSQL,
	"overloads.sql":     overloadsSQL,
	"backlog_start.sql": backlogStartSQL,
	"backlog_page.sql":  backlogPageSQL,
}

// Step fires a batch of due timers, once.
func (s *Scheduler) Step(ctx context.Context) error {
	_, err := s.step(ctx)
	return err
}

// Discard discards what is above the limits, once.
func (s *Scheduler) Discard(ctx context.Context) error { return s.discarder.pass(ctx) }

// Safe returns the moment before which the scheduler does not read the index.
func (s *Scheduler) Safe() time.Time { return s.horizon.safe }

// PollAlways has every step poll, whatever that costs, and sample the clock.
func (s *Scheduler) PollAlways() { s.pollAt, s.sampleAt = time.Time{}, time.Time{} }
