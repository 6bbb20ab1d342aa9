package workers

import (
	"context"
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// outlived is called when an attempt has run for StartedAfter: only now its start is recorded,
// beside its transaction, and an eye is kept on its context. Quick attempts are spared both.
func (a *attempt) outlived() {
	a.mu.Lock()
	if a.joined {
		a.mu.Unlock()
		return
	}
	a.unwatch = context.AfterFunc(a.ctx, func() {
		time.AfterFunc(a.kind.pool.abandonAfter(), a.abandon)
	})
	a.mu.Unlock()
	_ = a.note(ledger.EventStarted, nil)
}

// note appends an event of an attempt that runs, beside its transaction: its start, unless that
// is on record, or progress, which says as well that it has begun. Events are noted one after the
// other. If the claim turns out to be lost, the handler is cancelled, and note returns why. An error
// that says nothing of the claim means that the event may or may not be on record.
func (a *attempt) note(t ledger.EventType, data json.RawMessage) error {
	a.noting.Lock()
	defer a.noting.Unlock()
	a.mu.Lock()
	over, claimed, lost := a.joined, a.claimed, a.lost
	a.mu.Unlock()
	switch {
	case lost:
		return ErrFenced
	case over || a.caller != nil || claimed && t == ledger.EventStarted: // nobody can see the task of a caller
		return errOver
	}
	e, version, fence, err := a.appendNote(t, data)
	a.mu.Lock()
	a.claimed = a.claimed || version != a.version
	a.version, a.lost = version, fence != nil
	a.mu.Unlock()
	if fence != nil {
		a.cancel(fence)
		return fence
	}
	if e.Version != 0 {
		a.appended(e)
	}
	return err
}

// appendNote appends an event of the running attempt. It returns the event, if the answer says
// so; the version that the attempt must expect from now on; and why the claim is lost: ErrFenced or
// ErrCancelled; nil: it is not.
func (a *attempt) appendNote(t ledger.EventType, data json.RawMessage) (e ledger.Event, version ledger.Version, lost, err error) {
	k := a.kind
	ctx, cancel := k.pool.operation()
	defer cancel()
	e, err = ledger.Append(ctx, k.pool.config.DB, a.request(t, data))
	switch {
	case err == nil:
		return e, e.Version, nil, nil
	case ledger.IsConflict(err):
		return e, a.version, fencedBy(err), err
	}
	// It may or may not be recorded: the head knows.
	k.warn("cannot record that an attempt runs", "event", string(t), "biz_id", string(a.job.BizID), "error", err)
	retry, stop := k.pool.operation()
	defer stop()
	heads, headErr := k.heads(retry, []*held{a.held})
	if headErr != nil {
		return e, a.version, nil, err // if it was recorded after all, the outcome will be fenced
	}
	switch h := heads[0]; {
	case h.found && h.version == a.version:
		return e, a.version, nil, err
	case h.version == a.version+1 && h.eventType == t && h.actor == k.pool.id:
		return e, h.version, nil, nil
	}
	return e, a.version, ErrFenced, err
}

// join waits until nothing is noted of the attempt any more, so that its version is what the
// outcome has to follow.
func (a *attempt) join() {
	if a.timer == nil {
		return // it did not begin
	}
	a.timer.Stop()
	if a.timeout != nil {
		a.kind.timeouts.leave(a.timeout)
	}
	a.mu.Lock()
	a.joined = true
	unwatch := a.unwatch
	a.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	a.noting.Lock() // what is being noted
	defer a.noting.Unlock()
	a.progress.stop()
}
