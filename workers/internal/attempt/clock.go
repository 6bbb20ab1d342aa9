package attempt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Why a handler's context is cancelled. Package workers exports them.
var (
	ErrStopping  = errors.New("the worker is stopping")
	ErrTimeout   = errors.New("the attempt timed out")
	ErrExpired   = errors.New("the task's deadline has passed")
	ErrFenced    = errors.New("the claim to the task is lost")
	ErrCancelled = fmt.Errorf("%w: the task was cancelled", ErrFenced)
)

// begin makes the handler's context and starts the clocks.
func (a *Attempt) begin() {
	k := a.kind
	a.begun = time.Now()
	a.progress.recorded = a.begun // so that quick attempts record none
	base := a.base
	if k.Timeout > 0 && !a.private {
		a.deadline = k.deadlines.enter(base, a.begun, k.Timeout)
		base = a.deadline
	}
	a.ctx, a.cancel = context.WithCancelCause(ledger.WithCause(base, a.work))
	if k.Timeout > 0 && a.private { // its context is like no other one
		a.endAt(a.begun.Add(k.Timeout), ErrTimeout)
	}
	if !a.finishBy.IsZero() {
		a.endAt(a.finishBy, ErrExpired)
	}
	a.mu.Lock() // it may have ended before the timer is stored
	a.started = time.AfterFunc(k.StartedAfter, a.noteStart)
	a.mu.Unlock()
	if k.Tasks.Begin(a.task, a) {
		a.cancel(ErrFenced)
	}
}

// endAt cancels the handler's context at a moment.
func (a *Attempt) endAt(t time.Time, cause error) {
	ctx, stop := context.WithDeadlineCause(a.ctx, t, cause)
	cancel := a.cancel
	a.ctx, a.cancel = ctx, func(cause error) { cancel(cause); stop() }
}

// noteStart is called when an attempt has run for StartedAfter: only then its start is recorded, beside
// its transaction, and only from then on the end of its context is watched. Quick attempts need neither.
func (a *Attempt) noteStart() {
	a.mu.Lock()
	if a.joined {
		a.mu.Unlock()
		return
	}
	a.unwatch = context.AfterFunc(a.ctx, func() {
		time.AfterFunc(a.kind.Grace(), a.abandon)
	})
	a.mu.Unlock()
	_ = a.Note(ledger.EventStarted, nil)
}

// join returns once no note of the attempt is under way any more and none can begin: the outcome follows
// the version that the attempt has then.
func (a *Attempt) join() {
	if a.started == nil {
		return // it did not begin
	}
	a.started.Stop()
	if a.deadline != nil {
		a.kind.deadlines.leave(a.deadline)
	}
	a.mu.Lock()
	a.joined = true
	unwatch := a.unwatch
	a.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	a.noting.Lock() // waits for a note under way
	defer a.noting.Unlock()
	a.progress.stop()
}

// deadlines gives the attempts of a kind contexts that end when they have taken too long. Attempts that
// begin at about the same time share one, since a context with a deadline costs more than all other
// clocks of a quick attempt. It is safe for concurrent use.
type deadlines struct {
	mu     sync.Mutex
	newest *deadline
}

// deadline is a context that ends at a moment. The fields below the context are guarded by deadlines.mu.
type deadline struct {
	context.Context
	stop     context.CancelFunc
	at       time.Time
	attempts int // that use it
}

// enter returns a context derived from base that ends, with the cause [ErrTimeout], d after now or up to
// a hundredth of d later. Each call is followed by one of leave.
func (ds *deadlines) enter(base context.Context, now time.Time, d time.Duration) *deadline {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.newest == nil || ds.newest.at.Before(now.Add(d)) {
		ds.retire()
		at := now.Add(d + d/100)
		ctx, stop := context.WithDeadlineCause(base, at, ErrTimeout)
		ds.newest = &deadline{Context: ctx, stop: stop, at: at}
	}
	ds.newest.attempts++
	return ds.newest
}

// retire gives the newest context to no further attempt. ds.mu is held.
func (ds *deadlines) retire() {
	if ds.newest != nil && ds.newest.attempts == 0 {
		ds.newest.stop()
	}
	ds.newest = nil
}

// leave ends the use of a context.
func (ds *deadlines) leave(d *deadline) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d.attempts--; d.attempts == 0 && d != ds.newest {
		d.stop()
	}
}
