package workers

import (
	"context"
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
	if a.claimed {
		a.mu.Unlock()
		return
	}
	starting := make(chan struct{})
	a.starting = starting
	a.mu.Unlock()

	version, lost := a.recordStart()
	a.mu.Lock()
	a.claimed = version != a.version
	a.version, a.lost = version, lost != nil
	a.mu.Unlock()
	close(starting)
	if lost != nil {
		a.cancel(lost)
	}
}

// recordStart appends the started event. It returns the version that the attempt must expect
// from now on, and why the claim is lost: ErrFenced or ErrCancelled; nil: it is not.
func (a *attempt) recordStart() (version ledger.Version, lost error) {
	k := a.kind
	ctx, cancel := k.pool.operation()
	defer cancel()
	e, err := ledger.Append(ctx, k.pool.config.DB, a.request(ledger.EventStarted, nil))
	switch {
	case err == nil:
		return e.Version, nil
	case fenced(err):
		return a.version, fencedBy(err)
	}
	// It may or may not be recorded: the head knows.
	k.logger.WarnContext(ctx, "cannot record a start", "biz_id", string(a.job.BizID), "error", err)
	retry, stop := k.pool.operation()
	defer stop()
	heads, err := k.heads(retry, []*held{a.held})
	if err != nil {
		return a.version, nil // if it was recorded after all, the outcome will be fenced
	}
	switch h := heads[0]; {
	case h.found && h.version == a.version:
		return a.version, nil
	case h.version == a.version+1 && h.eventType == ledger.EventStarted && h.actor == k.pool.id:
		return h.version, nil
	}
	return a.version, ErrFenced
}

// join waits until nobody records the start of the attempt any more, so that its version is
// what the outcome has to follow.
func (a *attempt) join() {
	if a.timer == nil || a.timer.Stop() {
		return // the attempt was quick
	}
	a.mu.Lock()
	a.joined = true
	starting, unwatch := a.starting, a.unwatch
	a.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	if starting != nil {
		<-starting
	}
}
