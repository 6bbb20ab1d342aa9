package workers

import (
	"context"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/atmostonce"
)

// claim makes sure of a task that somebody may have begun before: the start of the attempt is
// on record before its handler runs. It is done when a slot is there, and not when the message
// is decided: if this process dies, what has merely waited in it must not count as lost. It
// reports whether the handler may run; else the task is taken care of.
func (k *kind) claim(a *attempt) bool {
	if a.verdict != claimAndRun && a.verdict != takeOver {
		return true
	}
	ctx, cancel := k.pool.operation()
	defer cancel()
	if a.verdict == takeOver && !k.mayTakeOver(ctx, a) {
		return false
	}
	e, err := k.appendStart(ctx, a)
	if err != nil {
		k.unclaimed(a, err)
		return false
	}
	if a.verdict == takeOver {
		k.noticed(NoticeTakenOver)
	}
	fault.Point(pointClaimed)
	a.version, a.job.Attempt, a.claimed = e.Version, e.Attempt, true
	a.appended(e)
	return true
}

func (k *kind) appendStart(ctx context.Context, a *attempt) (ledger.Event, error) {
	if k.guarantee == AtMostOnce {
		return k.claimOnce(ctx, a)
	}
	return ledger.Append(ctx, k.pool.config.DB, a.request(ledger.EventStarted, nil))
}

// unclaimed takes care of a task that could not be claimed.
func (k *kind) unclaimed(a *attempt, err error) {
	if ledger.IsConflict(err) {
		k.again(a.held) // somebody else was quicker
		return
	}
	k.warn("cannot record a start", "biz_id", string(a.job.BizID), "error", err)
	k.settle(a.held, nakAfter(k.retryDelay(a.held)))
}

// mayTakeOver decides whether a task whose worker is gone gets another one: not if it has lost
// too many in a row, and later if it is a suspect and another suspect runs.
func (k *kind) mayTakeOver(ctx context.Context, a *attempt) bool {
	history, err := ledger.History(ctx, k.pool.config.DB, a.job.Key)
	var task ledger.Task
	if err == nil {
		task, err = ledger.Fold(history)
	}
	if err != nil {
		k.unclaimed(a, err)
		return false
	}
	lost := task.LostInARow + 1
	switch {
	case task.Version != a.version:
		k.again(a.held)
		return false
	case atmostonce.HasStarted(history): // by a worker from before the kind's guarantee was changed
		k.bury(ctx, a, buriedData{Reason: atmostonce.ReasonUnknown})
		return false
	case lost >= k.config.MaxLost:
		k.bury(ctx, a, buriedData{Reason: "its workers were lost, one after the other", Lost: lost})
		return false
	case lost >= k.config.MaxLost-2 && !k.pool.quarantine.enter(a):
		k.settle(a.held, nakAfter(k.pool.config.AckWait/2))
		return false
	}
	k.logger.WarnContext(ctx, "task taken over", "biz_id", string(a.job.BizID), "from", task.Actor, "lost", lost)
	return true
}

// quarantine keeps suspects apart. A task that kills its worker takes along whatever else runs
// there, which then looks as guilty; so tasks that have only two chances left run one at a time,
// at least until they have lived for an AckWait. The innocent finish.
type quarantine struct {
	mu      sync.Mutex
	suspect *attempt // nil: none is in
}

// enter takes in a suspect, unless there is one.
func (q *quarantine) enter(a *attempt) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.suspect != nil {
		return false
	}
	q.suspect = a
	time.AfterFunc(a.kind.pool.config.AckWait, func() { q.leave(a) })
	return true
}

// leave lets the next suspect in, if this one is in.
func (q *quarantine) leave(a *attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.suspect == a {
		q.suspect = nil
	}
}
