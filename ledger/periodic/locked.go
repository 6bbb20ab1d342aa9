package periodic

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

const (
	// minLockedRetry is the least pause before a schedule is tried again if an open transaction holds its firing's
	// key.
	minLockedRetry = time.Second
	// lockedShare: at most one part in lockedShare of the time is spent on such schedules, so that the others fire on
	// time however many there are. No pause exceeds maxLockedRest.
	lockedShare   = 11
	maxLockedRest = 5 * time.Minute
	// maxLockedCost is the most that a try counts for: the rest is an outage, not a lock.
	maxLockedCost = 250 * time.Millisecond
	// lockedLogEvery is the least time between two log lines about such a schedule.
	lockedLogEvery = 30 * time.Second
)

// lockedFiring is a schedule that could not fire because an open transaction holds its firing's key. Its times are
// read from this machine's monotonic clock.
type lockedFiring struct {
	cost     time.Duration // of the last try
	retryAt  time.Time
	loggedAt time.Time
}

// deferLocked leaves out a schedule for a while, in proportion to cost, the time of its last try, and logs it.
func (r *runner) deferLocked(ctx context.Context, name string, cost time.Duration, err error) {
	now := time.Now()
	f := r.locked[name]
	if f == nil {
		f = new(lockedFiring)
		r.locked[name] = f
	}
	f.cost = min(cost, maxLockedCost)
	var all time.Duration
	for _, other := range r.locked {
		all += other.cost
	}
	in := max(minLockedRetry, loop.Rest(all, lockedShare, maxLockedRest))
	f.retryAt = now.Add(in)
	if f.loggedAt.IsZero() || now.Sub(f.loggedAt) >= lockedLogEvery {
		f.loggedAt = now
		r.log.WarnContext(ctx, "schedule waits for an open transaction that has enqueued its task",
			"schedule", name, "error", err, "retry_in", in)
	}
}

// unlock forgets a schedule that has fired. If it was locked, one transaction probably held most of the others too,
// and has ended: they are tried again at once.
func (r *runner) unlock(name string) {
	if r.locked[name] == nil {
		return
	}
	delete(r.locked, name)
	for _, f := range r.locked {
		f.retryAt = time.Now()
	}
}

// waiting returns the schedules of locked that are not to be retried yet. It forgets schedules that have not been due
// since then: an operator has removed or paused them.
func (r *runner) waiting() (names []string) {
	now := time.Now()
	for name, f := range r.locked {
		switch late := now.Sub(f.retryAt); {
		case late < 0:
			names = append(names, name)
		case late > time.Minute:
			delete(r.locked, name)
		}
	}
	return names
}
