package workers

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// Pass looks at everything once.
func (r *Reconciler) Pass(ctx context.Context) error { return r.pass(ctx) }

// SetTogetherTime replaces how long a shared transaction takes in further tasks. It must be called before Run.
func (p *Pool) SetTogetherTime(d time.Duration) { p.runner.SetSharedTime(d) }

// SetAheadTime replaces how much work is held beyond the slots, for kinds that are registered later.
func (p *Pool) SetAheadTime(d time.Duration) { p.aheadTime = d }

// Ready is how many tasks wait for a slot.
func (p *Pool) Ready() (n int) {
	for _, k := range p.registered() {
		n += p.slots.Ready(k.line)
	}
	return n
}

// Statements are those of this package, by file name.
var Statements = map[string]string{
	"installation.sql": installationSQL,
	"worker_list.sql":  workerListSQL,
	"dead.sql":         deadSQL,
	"kind_pause.sql":   kindPauseSQL,
	"kind_resume.sql":  kindResumeSQL,
	"kind_paused.sql":  kindPausedSQL,
	"unhandled.sql":    unhandledSQL,
	"kind_shed.sql":    kindShedSQL,
	"find.sql":         findSQL,
	"find_aside.sql":   findAsideSQL,
	"find_dead.sql":    findDeadSQL,

	"reconcile_mark.sql":   reconcileMarkSQL,
	"reconcile_bounds.sql": reconcileBoundsSQL,
	"reconcile_page.sql":   reconcilePageSQL,

	"timers_fire.sql":        timersFireSQL,
	"timers_lowest.sql":      timersLowestSQL,
	"timers_due.sql":         timersDueSQL,
	"timers_status.sql":      timersStatusSQL,
	"scheduler_mark.sql":     schedulerMarkSQL,
	"scheduler_settings.sql": schedulerSettingsSQL,

	"overload_look.sql": overloadLookSQL,
	"overload_page.sql": overloadPageSQL,
	"overload_back.sql": overloadBackSQL,
}

// Pass looks once whether something is due, and fires a batch of it.
func (s *Scheduler) Pass(ctx context.Context) error {
	_, err := s.pass(ctx)
	return err
}

// Shed looks once whether too much waits, and discards it.
func (s *Scheduler) Shed(ctx context.Context) error { return s.shedder.pass(ctx) }

// Safe is the moment below which the scheduler does not look.
func (s *Scheduler) Safe() time.Time { return s.marks.safe }

// LookAlways has every pass look from the safe mark on, whatever that costs, and set a mark.
func (s *Scheduler) LookAlways() { s.lookAt, s.markAt = time.Time{}, time.Time{} }

// Errors of handlers that break the transaction of their caller.
var ErrRowsOpen = attempt.ErrRowsOpen

// ErrConnectionLost is part of the error of an attempt whose connection was lost.
var ErrConnectionLost = attempt.ErrConnectionLost

// AheadBytes bounds what is held beyond the slots.
const AheadBytes = inflight.AheadBytes

// Waiting is how many tasks of its i-th kind wait for a slot and nothing else.
func (p *Pool) Waiting(i int) int { return p.slots.Ready(p.registered()[i].line) }
