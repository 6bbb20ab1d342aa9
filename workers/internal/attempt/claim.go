package attempt

import (
	"context"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// claim records the start of an attempt before its handler runs, if another attempt may have begun before, or takes its
// permits. It reports whether the handler may run; if not, the task is dropped or decided again later. It is called
// when the attempt is in a slot, not when its head is read: if this process dies, a task that only waited must not
// count as lost.
func (a *Attempt) claim() bool {
	switch {
	case a.verdict == PermitFirst && a.takePermits():
		fault.Point(pointClaimed)
		return true
	case a.verdict != PermitFirst && a.verdict != ClaimFirst && a.verdict != TakeOver:
		return true
	}
	k := a.kind
	ctx, cancel := k.Operation()
	defer cancel()
	if a.verdict == TakeOver && !a.canTakeOver(ctx) {
		return false
	}
	e, err := a.appendStart(ctx)
	if err != nil {
		a.unclaimed(err)
		return false
	}
	if a.verdict == TakeOver {
		a.work.TakenOver()
	}
	fault.Point(pointClaimed)
	a.version, a.number, a.claimed, a.task.Started = e.Version, e.Attempt, true, e.Version
	a.head.version, a.head.attempt = int32(e.Version), int32(e.Attempt)
	a.started(e)
	return true
}

// canTakeOver reports whether a task whose worker is gone may run here. If the task has lost too many workers in a
// row, it is buried. If it is a suspect and another suspect runs, it is decided again later.
func (a *Attempt) canTakeOver(ctx context.Context) bool {
	k := a.kind
	task, err := ledger.Load(ctx, a.store, a.task.Message.Key)
	var wasOnce bool
	if err == nil {
		wasOnce, err = hasStartedOnce(ctx, a.store, task.Key)
	}
	if err != nil {
		a.unclaimed(err)
		return false
	}
	lost := task.LostInARow + 1
	switch {
	case task.Version != a.version:
		k.Again(a.task)
		return false
	case wasOnce: // by a worker with an earlier guarantee of the kind
		a.bury(ctx, burial{Reason: reasonUnknown})
		return false
	case lost >= k.MaxLost:
		a.bury(ctx, burial{Reason: reasonLost, Lost: lost})
		return false
	case lost >= k.MaxLost-2 && !k.quarantine.enter(a):
		a.later(k.leaseTTL / 2)
		return false
	}
	k.Logger.WarnContext(
		ctx, "task taken over", "biz_id", string(a.task.Message.BizID), "from", task.Actor, "lost", lost,
	)
	return true
}

// quarantine keeps suspects apart. A task that kills its worker also interrupts all others that run there, and they
// look equally guilty. So a task that has only two losses left runs alone, at least until it has run for a LeaseTTL;
// the innocent tasks finish. It is safe for concurrent use.
type quarantine struct {
	mu      sync.Mutex
	suspect *Attempt // admitted one, or nil; guarded by mu
}

// enter admits a suspect, unless a suspect is admitted already.
func (q *quarantine) enter(a *Attempt) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.suspect != nil {
		return false
	}
	q.suspect = a
	time.AfterFunc(a.kind.leaseTTL, func() { q.leave(a) })
	return true
}

// leave ends the admission of a suspect.
func (q *quarantine) leave(a *Attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.suspect == a {
		q.suspect = nil
	}
}
