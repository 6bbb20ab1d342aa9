package workers

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// decide reads the heads of tasks, in one query with the heads of tasks that arrive meanwhile. Its goroutine runs only
// while the kind has undecided tasks.
func (k *kind) decide(tasks ...*attempt.Task) {
	if len(tasks) == 0 {
		return
	}
	k.undecided.Add(tasks...)
	if k.isBusy.CompareAndSwap(false, true) {
		go k.dispatch()
	}
}

// decideAgain rereads the head of a task that is still in flight.
func (k *kind) decideAgain(t *attempt.Task) {
	k.Tasks.Reset(t)
	k.decide(t)
}

// headsMemory holds memory for the heads of a batch. Kinds without tasks hold none.
var headsMemory = sync.Pool{New: func() any { return new([]attempt.Head) }}

// dispatch decides arrived tasks, batch by batch, until there are no more. Once the pool is stopping it gives them
// all back.
func (k *kind) dispatch() {
	heads := headsMemory.Get().(*[]attempt.Head)
	defer headsMemory.Put(heads)
	for {
		batch := k.undecided.TryTake(attempt.MaxBatch)
		if len(batch) == 0 {
			k.isBusy.Store(false)
			if k.undecided.IsEmpty() || !k.isBusy.CompareAndSwap(false, true) {
				return
			}
			continue
		}
		if k.IsStopping() {
			for _, t := range batch {
				k.Tasks.GiveBack(t)
			}
			continue
		}
		k.decideBatch(batch, heads)
	}
}

// decideBatch reads the heads of a batch in one query and carries out the verdicts. The heads use the memory of space.
func (k *kind) decideBatch(batch []*attempt.Task, space *[]attempt.Head) {
	ctx, cancel := context.WithTimeout(k.pool.stopping, k.pool.config.LeaseTTL)
	defer cancel()
	now := time.Now()
	heads, err := k.Heads(ctx, batch, k.Tasks.RoomForArgs(), *space)
	if err != nil && k.IsStopping() {
		for _, t := range batch {
			k.Tasks.GiveBack(t)
		}
		return
	}
	if err != nil {
		k.Warn(k.Logger, "cannot read heads", "tasks", len(batch), "error", k.pool.withCure(err))
		after := k.RepeatAfter(err)
		for _, t := range batch {
			k.Later(t, after)
		}
		return
	}
	*space = heads
	var ready []*run
	for i, t := range batch {
		if err := k.correct(t, heads[i]); err != nil {
			k.Warn(k.Logger, "cannot read args", "biz_id", string(t.Message.BizID), "error", err)
			k.Later(t, k.pool.config.LeaseTTL/2)
			continue
		}
		if r := k.carryOut(k.verdict(t, heads[i]), t, heads[i], now); r != nil {
			ready = append(ready, r)
		}
	}
	k.ready(now, ready)
}

// ready adds attempts to the line, or gives them back once the pool is stopping.
func (k *kind) ready(now time.Time, ready []*run) {
	if !k.pool.slots.Add(k.line, now, ready...) {
		for _, r := range ready {
			r.GiveBack()
		}
		return
	}
}

// correct adds the ledger's args, envelope and deadline to a task that was offered without content.
func (k *kind) correct(t *attempt.Task, h attempt.Head) error {
	if !h.IsFound || !t.LacksArgs {
		return nil
	}
	if t.Message.RecordedAt.IsZero() { // else the offer or an earlier read has named the event, and it must be the same
		t.Message.RecordedAt = h.RecordedAt
	}
	t.Message.Traceparent, t.Message.Tracestate = stream.TraceIn(h.Meta)
	return k.takeFirst(t, h.Args, h.Meta, h.HasArgs)
}

// takeFirst adds the handler's input from a task's first event. Missing args are read once the task is in a slot.
func (k *kind) takeFirst(t *attempt.Task, args, meta json.RawMessage, hasArgs bool) error {
	payload, err := ledger.Event{Data: args, Meta: meta}.Payload()
	if err != nil {
		return err
	}
	envelope, finishBy := stream.BesideArgs(meta)
	k.Tasks.Correct(t, payload, envelope, finishBy)
	t.LacksArgs = !hasArgs
	return nil
}

// readArgs reads the missing args of a task in its slot, and reports whether they are present. Otherwise the task is
// decided again later.
func (k *kind) readArgs(t *attempt.Task) bool {
	if !t.LacksArgs {
		return true
	}
	ctx, cancel := k.Operation()
	defer cancel()
	first, err := ledger.ArgsEvent(ctx, k.pool.config.DB, t.Message.Key)
	if err == nil {
		err = k.takeFirst(t, first.Data, first.Meta, true)
	}
	if err != nil {
		k.Warn(k.Logger, "cannot read args", "biz_id", string(t.Message.BizID), "error", err)
		k.Later(t, k.RepeatAfter(err))
	}
	return err == nil
}

// verdict decides about a task by its head and the guarantee of the kind.
func (k *kind) verdict(t *attempt.Task, h attempt.Head) attempt.Verdict {
	v := attempt.Decide(t.Message, t.IsAgain, h, k.pool.id)
	if k.Once {
		v = v.Once(h.Version < t.Started)
	}
	if k.isClaimed && (v == attempt.ClaimFirst || v == attempt.Resume || v == attempt.TakeOver) {
		return attempt.Begin // the claim records the start
	}
	switch {
	case v != attempt.Begin:
	case k.isShed.Load() || k.recordsFirst():
		return attempt.ClaimFirst
	case k.TakesPermits():
		return attempt.PermitFirst
	}
	return v
}

// carryOut ends or holds a task, or returns the attempt to be run.
func (k *kind) carryOut(v attempt.Verdict, t *attempt.Task, h attempt.Head, now time.Time) *run {
	switch v {
	case attempt.RefuseGhost:
		k.noticed(NoticeGhost)
		k.Logger.Warn("ghost refused: the ledger does not have this event", "event", t.Message.ID())
		k.Tasks.End(t)
	case attempt.Drop:
		k.Tasks.End(t)
	case attempt.Wait:
		k.returnLater(t)
	default:
		return k.newRun(t, v, h, now)
	}
	return nil
}

// returnLater gives back, after a delay, a task that another worker has begun and whose lease is alive. The dispatcher
// offers it to that worker alone, even if the worker has dropped it.
func (k *kind) returnLater(t *attempt.Task) {
	delay := k.Tasks.Hold(t, k.pool.config.LeaseTTL/2)
	go func() {
		_ = loop.Sleep(k.pool.stopping, delay)
		k.Tasks.GiveBack(t)
	}()
}

// begin runs an attempt in its slot, if it may still run.
func (k *kind) begin(r *run) {
	if k.canBegin(r) {
		r.Run()
	}
}

// canBegin reports whether an attempt in a slot may still run. If not, it gives the task back or rereads its head,
// which may have moved on while the attempt waited for the slot.
func (k *kind) canBegin(r *run) bool {
	t := r.Task()
	switch {
	case k.IsStopping() || k.isPaused.Load() || !k.pool.config.Shards.Has(t.Message.Shard):
		r.GiveBack()
	case !k.isFresh(r) || k.Tasks.IsRecalled(t):
		k.decideAgain(t)
	case !k.readArgs(t):
	case k.recordsFirst() && !r.RecordsStart() || k.TakesPermits() && !r.IsAllowed(): // it changed meanwhile
		k.decideAgain(t)
	default:
		return true
	}
	return false
}

// isFresh reports whether the attempt may begin without reading the head of its task again.
func (k *kind) isFresh(r *run) bool {
	if !r.seen.IsZero() {
		return time.Since(r.seen) <= dispatch.Freshness && k.pool.asker.hasReached(time.Time{})
	}
	return time.Since(r.Decided()) <= k.pool.config.LeaseTTL/2 && k.pool.asker.hasReached(r.Decided())
}

// companion takes the next attempt of the line, if suits accepts it and it may still run.
func (k *kind) companion(suits func(*attempt.Attempt) bool) *attempt.Attempt {
	for {
		r, ok := k.pool.slots.TakeIf(k.line, func(r *run) bool { return suits(r.Attempt) })
		if !ok {
			return nil
		}
		if k.canBegin(r) {
			return r.Attempt
		}
	}
}

// hasCompanion reports whether the next attempt of the line suits.
func (k *kind) hasCompanion(suits func(*attempt.Attempt) bool) bool {
	r, ok := k.pool.slots.Peek(k.line)
	return ok && suits(r.Attempt)
}
