package workers

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// dispatch decides what came in, batch by batch, until quit is done. Once the pool is stopping
// it gives everything back instead.
func (k *kind) dispatch(stopping, quit context.Context) {
	for {
		batch := k.undecided.take(quit, maxBatch)
		if len(batch) == 0 {
			return
		}
		if stopping.Err() != nil {
			for _, h := range batch {
				k.settle(h, nakAnswer)
			}
			continue
		}
		k.decideBatch(batch)
	}
}

// decideBatch reads the heads of a batch in one query and carries out what they say.
func (k *kind) decideBatch(batch []*held) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	heads, err := k.heads(ctx, batch)
	if err != nil {
		k.logger.WarnContext(ctx, "cannot read heads", "tasks", len(batch), "error", err)
		for _, h := range batch {
			k.settle(h, nakAfter(k.retryDelay(h)))
		}
		return
	}
	now := time.Now()
	var claims []*attempt
	for i, h := range batch {
		head := heads[i]
		switch decide(h.msg, h.redelivered, head, k.pool.id) {
		case refuseGhost:
			k.counts.ghost()
			k.logger.WarnContext(ctx, "ghost refused: the ledger does not have this event", "event", h.msg.ID())
			k.settle(h, termAnswer("ghost"))
		case drop:
			k.settle(h, ackAnswer)
		case wait:
			k.settle(h, nakAfter(min(max(head.alive, minPause), k.pool.config.AckWait/2)))
		case run:
			k.ready <- k.newAttempt(h, head.version, head.attempt+1, now)
		case resume:
			a := k.newAttempt(h, head.version, head.attempt, now)
			a.claimed = true
			k.ready <- a
		case claimAndRun:
			claims = append(claims, k.newAttempt(h, head.version, head.attempt+1, now))
		case takeOver:
			// Rare, and takes some round trips: out of the way of the others.
			go k.takeOver(k.newAttempt(h, head.version, head.attempt+1, now))
		}
	}
	if len(claims) > 0 {
		go k.claim(claims)
	}
}

// claim records the start of attempts, as a group, and lets them run. One that does not get its
// claim is decided afresh.
func (k *kind) claim(attempts []*attempt) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	requests := make([]ledger.AppendRequest, len(attempts))
	for i, a := range attempts {
		requests[i] = a.request(ledger.EventStarted, nil)
	}
	for i, r := range ledger.AppendEach(ctx, k.pool.config.DB, requests) {
		k.claimed(attempts[i], r.Event, r.Err)
	}
}

// claimed lets an attempt run whose start was recorded.
func (k *kind) claimed(a *attempt, e ledger.Event, err error) {
	switch {
	case err == nil:
		a.version, a.job.Attempt, a.claimed = e.Version, e.Attempt, true
		k.ready <- a
	case fenced(err):
		k.again(a.held) // somebody else was quicker
	default:
		k.logger.Warn("cannot record a start", "biz_id", string(a.job.BizID), "error", err)
		k.settle(a.held, nakAfter(k.retryDelay(a.held)))
	}
}

// takeOver takes a task from a worker that is gone: the new start fences the old attempt. A task
// that has lost too many workers in a row is buried instead.
func (k *kind) takeOver(a *attempt) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	task, err := ledger.Load(ctx, k.pool.config.DB, a.job.Key)
	if err != nil {
		k.claimed(a, ledger.Event{}, err)
		return
	}
	if task.Version != a.version {
		k.again(a.held)
		return
	}
	if lost := task.LostInARow + 1; lost >= k.config.MaxLost {
		k.bury(ctx, a, buriedData{Reason: "its workers were lost, one after the other", Lost: lost})
		return
	}
	k.logger.WarnContext(ctx, "task taken over", "biz_id", string(a.job.BizID), "from", task.Actor)
	e, err := ledger.Append(ctx, k.pool.config.DB, a.request(ledger.EventStarted, nil))
	if err == nil {
		k.counts.takeOver()
	}
	k.claimed(a, e, err)
}

// again has a task that is still in hand decided afresh.
func (k *kind) again(h *held) {
	k.hand.again(h)
	k.undecided.add(h)
}

// bury records that a task needs a person.
func (k *kind) bury(ctx context.Context, a *attempt, data buriedData) {
	_, err := ledger.Append(ctx, k.pool.config.DB, a.request(ledger.EventBuried, data.json(a)))
	if err == nil {
		k.logger.ErrorContext(ctx, "task buried", "biz_id", string(a.job.BizID), "reason", data.Reason, "error", data.message())
	}
	k.recorded(a, OutcomeBuried, err)
}

// recorded ends an attempt whose outcome was appended in a transaction of its own, or was not.
func (k *kind) recorded(a *attempt, o Outcome, err error) {
	switch {
	case err == nil:
		fault.Point(pointCommitted)
		k.counts.attempt(o, a.took())
		k.settle(a.held, ackAnswer)
	case fenced(err):
		k.counts.attempt(OutcomeFenced, a.took())
		k.again(a.held)
	default:
		k.logger.Warn("cannot record an outcome", "biz_id", string(a.job.BizID), "outcome", string(o), "error", err)
		k.counts.attempt(OutcomeRetried, a.took())
		k.settle(a.held, nakAfter(k.retryDelay(a.held)))
	}
}
