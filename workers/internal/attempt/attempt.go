package attempt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// Attempt is one attempt at one task.
//
// It has one owner at a time. The owner is the goroutine of its slot until a goroutine sets isEnded: the slot's own,
// in finish, or the goroutine that abandons an overdue handler, in abandon. From then on that goroutine owns the
// attempt. The owner, and notes during the handler, use the fields under "owner"; join orders the notes before the
// owner's later reads.
type Attempt struct {
	recorder

	// Constant after New or NewPrivate.
	verdict   Verdict         // on its head
	decidedAt time.Time       // when its head was read
	base      context.Context // parent of the handler's context
	finishBy  time.Time       // by this machine's clock, from the remaining time by the database's; zero: no deadline

	// Owner.
	tx       transactor      // set before begin
	ctx      context.Context // of the handler
	cancel   context.CancelCauseFunc
	deadline *deadline // ctx derives from it; nil: no timeout, or a private attempt

	isEntered atomic.Bool // the handler may have begun
	isEnded   atomic.Bool // a goroutine ends the attempt

	noteMu sync.Mutex // held while an event is appended outside the handler's transaction

	mu        sync.Mutex  // guards the fields below, and version and claimed until join
	isJoined  bool        // too late for a note
	isFenced  bool        // another process appended to the task
	progress  *progress   // nil before the first report; guards itself
	noteTimer *noteTimer  // nil until the attempt begins
	unwatch   func() bool // stops the watch of ctx for abandon
}

var (
	errGoexit = errors.New("handler called runtime.Goexit")
	// ErrConnectionLost is the error of a handler whose connection broke; the server rolls back its writes.
	ErrConnectionLost = errors.New("the connection of the transaction was lost")
	// ErrRowsOpen is the error of a handler that left rows open.
	ErrRowsOpen = errors.New("handler returned with open rows of its transaction: close them")
	errEnded    = errors.New("the attempt has ended")
)

// New returns an attempt at a task, for the verdict on its head.
func New(k *Kind, t *Task, v Verdict, h Head, decided time.Time, w Work) *Attempt {
	a := &Attempt{
		recorder: recorder{
			kind: k, task: t, work: w, store: k.db, number: h.Attempt, version: h.Version, claimed: v == Resume,
			wasRunning: h.Type.State() == ledger.StateRunning,
			head:       readHead{h.Read, int32(h.Version), int32(h.Attempt), int16(h.Shard), int16(h.Priority)},
		},
		verdict: v, decidedAt: decided, base: k.Runner.work,
	}
	if h.IsOrdered && (h.Read == nil || h.Read.OrderKey == "") {
		a.head = readHead{} // its events get the order key of the event before, which the append then reads
	}
	if v != Resume && v != Vanished {
		a.number++
	}
	if !t.Message.FinishBy.IsZero() {
		a.finishBy = decided.Add(t.Message.FinishBy.Sub(h.Clock))
	}
	return a
}

// Task returns the task in flight.
func (a *Attempt) Task() *Task { return a.task }

// Number returns the number of the attempt; it may change until the handler begins.
func (a *Attempt) Number() ledger.Attempt { return a.number }

// RecordsStart reports whether the start is recorded before the handler begins.
func (a *Attempt) RecordsStart() bool { return a.IsAllowed() && a.verdict != PermitFirst }

// IsAllowed reports whether the limits of the kind allow the handler when it begins.
func (a *Attempt) IsAllowed() bool { return a.verdict != Begin }

// HasStart reports whether the start of an attempt that has begun is recorded.
func (a *Attempt) HasStart() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.claimed
}

// Decided returns when the head was read.
func (a *Attempt) Decided() time.Time { return a.decidedAt }

// Context returns the handler's context; nil if the attempt has not begun.
func (a *Attempt) Context() context.Context { return a.ctx }

// GiveBack gives back a task whose handler has not begun, by an event if its start is recorded or it holds a permit.
func (a *Attempt) GiveBack() {
	if !a.claimed && !a.hasPermit {
		a.kind.Tasks.GiveBack(a.task)
		return
	}
	ctx, cancel := a.kind.Operation()
	defer cancel()
	a.interrupt(ctx)
}

// isExpired reports whether the deadline of the task has passed.
func (a *Attempt) isExpired() bool { return !a.finishBy.IsZero() && !time.Now().Before(a.finishBy) }

// Run runs the attempt to its end. The handler may end the goroutine.
func (a *Attempt) Run() {
	k := a.kind
	k.running.Add(1)
	defer k.running.Add(-1)
	defer func() { k.Tasks.NotePace(time.Since(a.decidedAt)) }()
	fault.Point(pointReady)
	if a.verdict == TakeOver {
		defer k.quarantine.leave(a)
	}
	switch {
	case a.verdict == Vanished:
		a.buryVanished()
	case a.isExpired():
		a.expire()
	case !a.claim():
	case k.Acquire == nil:
		a.perform(noTx{})
	default:
		a.runInTransaction()
	}
}

// perform runs the handler, between begin and finish.
func (a *Attempt) perform(tx transactor) {
	a.tx = tx
	a.begin()
	err := errGoexit // unless the handler returns
	defer func() { a.finish(err) }()
	err = a.work.Call(a.ctx, tx.handle())
}

// Enter reports whether the handler may begin. It may not if the attempt was abandoned meanwhile.
func (a *Attempt) Enter() bool {
	a.isEntered.Store(true)
	return !a.isEnded.Load()
}

// begin makes the handler's context and starts the timers.
func (a *Attempt) begin() {
	k := a.kind
	a.beganAt = time.Now()
	base := a.base
	if k.Timeout > 0 && !a.private {
		a.deadline = k.deadlines.enter(base, a.beganAt, k.Timeout)
		base = a.deadline
	}
	a.ctx, a.cancel = context.WithCancelCause(ledger.WithCause(base, a.work))
	if k.Timeout > 0 && a.private { // its context derives from the caller's and shares no deadline
		a.endAt(a.beganAt.Add(k.Timeout), ErrTimeout)
	}
	if !a.finishBy.IsZero() {
		a.endAt(a.finishBy, ErrExpired)
	}
	a.mu.Lock() // it may have ended before the timer is stored
	a.noteTimer = k.startNoteTimer(a)
	a.mu.Unlock()
	if k.Tasks.Begin(a.task, a) {
		a.cancel(ErrFenced)
	}
}

// endAt cancels the handler's context at a point in time.
func (a *Attempt) endAt(t time.Time, cause error) {
	ctx, stop := context.WithDeadlineCause(a.ctx, t, cause)
	cancel := a.cancel
	a.ctx, a.cancel = ctx, func(cause error) { cancel(cause); stop() }
}

// finish ends an attempt whose handler has returned err.
func (a *Attempt) finish(err error) {
	cause, ok := a.end()
	if !ok {
		a.tx.returned(a)
		return
	}
	a.kind.Tasks.Done(a.task)
	if err = a.tx.check(cause, err); err != nil || a.isFenced {
		a.tx.undo(a, cause, err)
		return
	}
	fault.Point(pointHandler)
	a.tx.commit(a)
}

// end makes its caller the owner of the attempt, and returns the cause of the end of the handler's context, or nil.
// It returns false if the attempt was abandoned; then its outcome is already recorded.
func (a *Attempt) end() (cause error, ok bool) {
	if !a.isEnded.CompareAndSwap(false, true) {
		a.kind.overdue.Add(-1)
		return nil, false
	}
	cause = context.Cause(a.ctx)
	a.join()
	a.cancel(nil)
	return cause, true
}

// join waits for a note under way and allows no further one, because the outcome follows the attempt's version.
func (a *Attempt) join() {
	if a.noteTimer == nil {
		return // it has not begun
	}
	a.kind.stopNoteTimer(a.noteTimer)
	if a.deadline != nil {
		a.kind.deadlines.leave(a.deadline)
	}
	a.mu.Lock()
	a.isJoined = true
	unwatch, p := a.unwatch, a.progress
	a.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	a.noteMu.Lock() // waits for a note under way
	defer a.noteMu.Unlock()
	if p != nil {
		p.stop()
	}
}

// abandon ends an attempt whose handler did not return within the grace after its context was cancelled. Its slot
// stays busy until the handler returns. Its transaction cannot be used any more.
func (a *Attempt) abandon() {
	if !a.isEnded.CompareAndSwap(false, true) {
		return
	}
	k := a.kind
	k.overdue.Add(1)
	cause := context.Cause(a.ctx)
	a.tx.close() // the server then rolls back
	a.join()
	k.Logger.Error("abandoned a handler that does not return; its slot stays busy",
		"biz_id", string(a.task.Message.BizID), "attempt", int(a.number), "cause", cause)
	a.tx.abandon(a, cause, fmt.Errorf("%w, and the handler did not return", cause))
}
