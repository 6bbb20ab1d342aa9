package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// maxStack is how much of a panic's stack is recorded.
const maxStack = 8 << 10

// attempt is one try of one task.
type attempt struct {
	kind    *kind
	held    *held
	verdict verdict // how it came to run
	caller  *caller // in whose transaction it runs; nil: it is a worker's
	job     Job
	version ledger.Version // the task's last event as this attempt knows it
	claimed bool           // its start is on record
	decided time.Time      // when its head was read

	state   ledger.State // after the last event that was appended here; "": none was
	err     error        // why it did not succeed
	entered atomic.Bool  // the handler may have begun

	running  bool      // the task's last event is that of a running one
	finishBy time.Time // by this machine's clock, made of the time that was left by the database's; zero: no deadline

	begun  time.Time
	ctx    context.Context // of the handler
	cancel context.CancelCauseFunc
	conn   handlerConn // ExactlyOnce: that of the handler's transaction; its slot's alone
	shared *together   // that transaction, if it may be that of others, too
	socket net.Conn    // the socket of conn, which others may close
	over   atomic.Bool // somebody has taken it on to end this attempt
	timer  *time.Timer // until the attempt has outlived StartedAfter

	timeout *timeout // ctx is derived from; nil: it has none, or one of its own

	progress progress
	noting   sync.Mutex // held while an event is appended beside the handler

	mu      sync.Mutex
	joined  bool // too late to note anything
	lost    bool // somebody else appended to the task
	unwatch func() bool
	values  context.Context // the handler's context, if hooks made another one than ctx
}

func (k *kind) newAttempt(h *held, v verdict, last head, n ledger.Attempt, now time.Time) *attempt {
	a := &attempt{
		kind: k, held: h, verdict: v, version: last.version, claimed: v == resume, decided: now,
		running: last.eventType.State() == ledger.StateRunning,
		job: Job{
			Key: h.msg.Key, Attempt: n, Version: h.msg.Version, AvailableAt: h.msg.RecordedAt,
			Traceparent: h.msg.Traceparent, Tracestate: h.msg.Tracestate, Envelope: h.msg.Envelope, base: k.pool.config.Logger,
		},
	}
	a.job.attempt = a
	if !h.msg.FinishBy.IsZero() {
		a.finishBy = now.Add(h.msg.FinishBy.Sub(last.clock))
	}
	return a
}

// expired reports whether the deadline of the whole task has passed.
func (a *attempt) expired() bool { return !a.finishBy.IsZero() && !time.Now().Before(a.finishBy) }

// db is where its outcome is recorded.
func (a *attempt) db() ledger.DB {
	if a.caller != nil {
		return a.caller.tx
	}
	return a.kind.pool.config.DB
}

// request is the append of an event that follows what the attempt knows.
func (a *attempt) request(t ledger.EventType, data json.RawMessage) ledger.AppendRequest {
	return ledger.AppendRequest{Key: a.job.Key, Expected: a.version, Type: t, Actor: a.kind.pool.id, Data: data}
}

// took is how long the attempt has taken; 0 if its handler did not begin.
func (a *attempt) took() time.Duration {
	if a.begun.IsZero() {
		return 0
	}
	return time.Since(a.begun)
}

// inTurn runs an attempt that has its slots, if it is still to be run.
func (k *kind) inTurn(stopping context.Context, a *attempt) {
	if k.begins(stopping, a) {
		k.attempt(a)
	}
}

// begins reports whether an attempt whose turn it is is still to be run; else it is taken care of.
func (k *kind) begins(stopping context.Context, a *attempt) bool {
	switch {
	case stopping.Err() != nil || k.pause.isOn() || !k.mine.has(a.held.msg.Shard):
		k.giveBack(a)
	case time.Since(a.decided) > k.pool.config.AckWait/2, k.hand.isRecalled(a.held):
		k.again(a.held) // it waited so long for a slot that the head may have moved on, or it has
	default:
		return true
	}
	return false
}

// attempt runs one attempt to its end.
func (k *kind) attempt(a *attempt) {
	k.running.Add(1)
	defer k.running.Add(-1)
	defer func() { k.hand.pace.note(time.Since(a.decided)) }()
	fault.Point(pointReady)
	if a.verdict == takeOver {
		defer k.pool.quarantine.leave(a)
	}
	switch {
	case a.verdict == vanished:
		k.buryVanished(a)
	case a.expired():
		k.expire(a)
	case !k.claim(a):
	case k.guarantee == ExactlyOnce:
		k.exactly(a)
	default:
		k.atLeast(a)
	}
}

// begin starts the clocks of an attempt.
func (a *attempt) begin() {
	a.begun = time.Now()
	a.progress.recorded = a.begun // nothing is, but quick attempts are spared the event
	work := a.kind.pool.work
	if a.caller != nil {
		work = a.caller.ctx
	}
	d := a.kind.config.Timeout
	if d > 0 && a.caller == nil {
		a.timeout = a.kind.timeouts.enter(work, a.begun, d)
		work = a.timeout
	}
	a.ctx, a.cancel = context.WithCancelCause(ledger.WithCause(work, &a.job))
	if d > 0 && a.caller != nil { // whose context is like no other's
		ctx, stop := context.WithDeadlineCause(a.ctx, a.begun.Add(d), ErrTimeout)
		cancel := a.cancel
		a.ctx, a.cancel = ctx, func(cause error) { cancel(cause); stop() }
	}
	if !a.finishBy.IsZero() {
		ctx, stop := context.WithDeadlineCause(a.ctx, a.finishBy, ErrExpired)
		cancel := a.cancel
		a.ctx, a.cancel = ctx, func(cause error) { cancel(cause); stop() }
	}
	a.mu.Lock() // it may be over at once
	a.timer = time.AfterFunc(a.kind.config.StartedAfter, a.outlived)
	a.mu.Unlock()
	if a.kind.hand.begin(a) {
		a.cancel(ErrFenced)
	}
}

// call runs the hooks before the handler, and the handler. A panic is an error. If one of them ends
// the goroutine, call does not return; deferred functions of the caller still run.
func (a *attempt) call(tx pgx.Tx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			err = &PanicError{Value: v, Stack: stack[:min(len(stack), maxStack)]}
		}
	}()
	ctx, err := a.before(tx)
	if err == nil {
		err = a.kind.handler(ctx, tx, &a.job, a.held.msg.Payload)
	}
	if err != nil {
		_ = err.Error() // if that panics, as of a nil pointer in an error, it does here
	}
	return err
}

// end takes it on to end the attempt; false if somebody else did: it was abandoned, and its
// outcome is recorded already. It returns why the handler's context was cancelled, if it was.
func (a *attempt) end() (cause error, ok bool) {
	if !a.over.CompareAndSwap(false, true) {
		a.kind.overdue.Add(-1)
		return nil, false
	}
	cause = context.Cause(a.ctx)
	a.join()
	a.cancel(nil)
	return cause, true
}

// abandon ends an attempt whose handler did not return although its context was cancelled a
// while ago. Its slot stays taken until it returns. Its transaction cannot be used any more.
func (a *attempt) abandon() {
	if !a.over.CompareAndSwap(false, true) {
		return
	}
	k := a.kind
	k.overdue.Add(1)
	cause := context.Cause(a.ctx)
	if a.socket != nil {
		_ = a.socket.Close() // the server then rolls back
	}
	a.join()
	k.logger.Error("handler does not return: its slot stays taken", "biz_id", string(a.job.BizID), "attempt", int(a.job.Attempt), "cause", cause)
	err := fmt.Errorf("%w, and the handler did not return", cause)
	if a.caller != nil {
		k.forsake(a, err)
		return
	}
	if a.shared != nil {
		a.shared.abandoned(err)
	}
	k.conclude(a, cause, err)
}
