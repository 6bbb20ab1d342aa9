package workers

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// decideSoon has tasks decided, with what else comes meanwhile. A kind to which nothing comes has no
// goroutine for it.
func (k *kind) decideSoon(tasks ...*held) {
	if len(tasks) == 0 {
		return
	}
	k.undecided.add(tasks...)
	if k.deciding.CompareAndSwap(false, true) {
		go k.dispatch()
	}
}

// dispatch decides what came in, batch by batch, until there is nothing. Once the pool is stopping it
// gives everything back instead.
func (k *kind) dispatch() {
	for {
		batch := k.undecided.takeNow(maxBatch)
		if len(batch) == 0 {
			k.deciding.Store(false)
			if k.undecided.empty() || !k.deciding.CompareAndSwap(false, true) {
				return
			}
			continue
		}
		if k.pool.stopping.Err() != nil {
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
	ctx, cancel := context.WithTimeout(k.pool.stopping, k.pool.config.AckWait)
	defer cancel()
	now := time.Now()
	heads, err := k.heads(ctx, batch)
	if err != nil && k.pool.stopping.Err() != nil {
		for _, h := range batch {
			k.settle(h, nakAnswer)
		}
		return
	}
	if err != nil {
		k.warn("cannot read heads", "tasks", len(batch), "error", err)
		for _, h := range batch {
			k.settle(h, nakAfter(k.retryDelay(h)))
		}
		return
	}
	var ready []*attempt
	for i, h := range batch {
		head := heads[i]
		v := decide(h.msg, h.redelivered, head, k.pool.id)
		if k.guarantee == AtMostOnce {
			v = v.onceOnly()
		}
		if v == run && k.shed.Load() {
			v = claimAndRun
		}
		switch v {
		case refuseGhost:
			k.noticed(NoticeGhost)
			k.logger.WarnContext(ctx, "ghost refused: the ledger does not have this event", "event", h.msg.ID())
			k.settle(h, termAnswer("ghost"))
		case drop:
			k.settle(h, ackAnswer)
		case wait:
			k.handOver(h, head)
		case run, claimAndRun, takeOver:
			ready = append(ready, k.newAttempt(h, v, head, head.attempt+1, now))
		case resume, vanished:
			ready = append(ready, k.newAttempt(h, v, head, head.attempt, now))
		}
	}
	if k.pool.turns.add(&k.line, ready...) {
		select {
		case k.readied <- struct{}{}:
		default:
		}
		return
	}
	for _, a := range ready {
		k.giveBack(a)
	}
}

// again has a task that is still in hand decided afresh.
func (k *kind) again(h *held) {
	k.hand.again(h)
	k.decideSoon(h)
}

// recorded ends an attempt whose outcome was appended in a transaction of its own, or was not.
func (k *kind) recorded(a *attempt, o Outcome, err error) {
	switch {
	case err == nil:
		fault.Point(pointCommitted)
		k.ended(a, o, nil)
		k.settle(a.held, ackAnswer)
	case ledger.IsConflict(err) && a.caller == nil:
		k.ended(a, OutcomeFenced, err)
		k.again(a.held)
	default:
		k.warn("cannot record an outcome", "biz_id", string(a.job.BizID), "outcome", string(o), "error", err)
		k.ended(a, OutcomeRetried, err)
		k.settle(a.held, nakAfter(k.retryDelay(a.held)))
	}
}
