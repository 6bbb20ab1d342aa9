package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Statements are this package's statements, by file name.
var Statements = map[string]string{
	"settings.sql":        settingsSQL,
	"clock_sample.sql":    clockSampleSQL,
	"timers_due.sql":      timersDueSQL,
	"timers_fire.sql":     timersFireSQL,
	"timers_lowest.sql":   timersLowestSQL,
	"timers_turns.sql":    timersTurnsSQL,
	"timers_obsolete.sql": timersObsoleteSQL,
	"timers_status.sql":   timersStatusSQL,
	"overloads.sql":       overloadsSQL,
	"backlog_start.sql":   backlogStartSQL,
	"backlog_page.sql":    backlogPageSQL,

	"awaiting.sql":        awaitingSQL,
	"awaiting_remove.sql": awaitingRemoveSQL,
}

// Step fires a batch of due timers, once.
func (s *Scheduler) Step(ctx context.Context) error {
	_, err := s.step(ctx)
	return err
}

// Discard discards tasks above the limits, once, even if another scheduler holds the lease.
func (s *Scheduler) Discard(ctx context.Context) error {
	s.discarder.heldAt = time.Now().Add(time.Hour)
	return s.discarder.pass(ctx)
}

// DiscardInTurn discards tasks above the limits, once, if the scheduler holds the lease.
func (s *Scheduler) DiscardInTurn(ctx context.Context) error { return s.discarder.pass(ctx) }

// Safe returns the moment before which the scheduler does not read the index.
func (s *Scheduler) Safe() time.Time { return s.horizon.safe }

// PollAlways has every step poll, whatever that costs, and sample the clock.
func (s *Scheduler) PollAlways() { s.pollAt, s.sampleAt = time.Time{}, time.Time{} }

// ShortTurns makes a pass read at most two pages of waiting tasks of a kind.
func (s *Scheduler) ShortTurns() { s.awaiting.turn = 0 }

// AwaitingPage is the number of tasks of a page.
const AwaitingPage = awaitingPage

// ReleaseAwaiting walks once over the tasks that wait for predecessors, and decides until nothing is to be decided. It
// returns how many the walk has read.
func (s *Scheduler) ReleaseAwaiting(ctx context.Context) (read int, err error) {
	a := &s.awaiting
	var faults []error
	for isAtEnd := false; !isAtEnd || a.due.n > 0 || len(a.gone) > 0; {
		if !isAtEnd {
			if isAtEnd, err = a.walkOn(ctx); err != nil {
				return 0, err
			}
		}
		found, err := a.decideNext(ctx)
		if err != nil {
			return 0, err
		}
		faults = append(faults, found...)
	}
	read = a.walk.read
	a.endWalk()
	return read, errors.Join(faults...)
}

// RemoveObsolete removes the obsolete timers of the next page.
func (s *Scheduler) RemoveObsolete(ctx context.Context) error {
	_, err := s.obsolete.removePage(ctx)
	return err
}

// KeepSuccessors bounds the predecessors that are in memory.
func (s *Scheduler) KeepSuccessors(n int) { s.awaiting.known.limit = n }

// PointAwaited is the crash point between the end of a wait and the removal of its timer.
const PointAwaited = pointAwaited

// Retries returns how many tasks are to be decided again.
func (s *Scheduler) Retries() int { return s.awaiting.retry.n }

// NextWalk returns when the next walk begins.
func (s *Scheduler) NextWalk() time.Time { return s.awaiting.walk.at }

// Note queues what events require.
func (s *Scheduler) Note(events []ledger.Event) { s.awaiting.note(events) }
