package workers

import (
	"container/list"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// delivery is an attempt of a gateway: its handler waits here for the outcome of a worker in another process.
type delivery struct {
	// Constant after newDelivery.
	kind   *gatewayKind
	job    *Job
	args   []byte
	number string

	given    chan struct{}      // closed when a session has it
	outcomes chan remoteOutcome // gets one value, if isOver is set by the worker
	ended    chan struct{}      // closed when the outcome is recorded or cannot be; the fields after it are set

	// Guarded by the mutex of the pool.
	waits    *list.Element  // in the kind's list, until it is given
	session  *remoteSession // nil until it is given
	fence    string         // constant once it is given
	timeout  time.Duration  // of the attempt, once it is given
	again    bool           // it was in an answer before
	expires  time.Time      // it is lost then
	isRead   bool           // the session's worker has it
	outlives bool           // another process reports it, so that it may go on without this one
	isMoved  bool           // it goes on without this process, see handOver
	isOver   bool           // the handler returns, or will at once
	outcome  remoteOutcome  // of the worker, if isOver is set by it
	reason   remote.End     // why it is over without an outcome of the worker; "": it has one

	// Constant after ended is closed.
	end attempt.End
}

// remoteOutcome is how a worker has ended an attempt. digest identifies it.
type remoteOutcome struct {
	result json.RawMessage
	err    error
	digest [sha256.Size]byte
}

func newRemoteOutcome(result json.RawMessage, err error) remoteOutcome {
	o := remoteOutcome{result: result, err: err}
	text := canonical(result)
	if err != nil {
		d := vocabulary{}.Decide(err)
		text = fmt.Appendf(nil, "%s\x00%d %v %v %s", err, d.Action, d.HasRetry, d.In, d.At)
	}
	o.digest = sha256.Sum256(text)
	return o
}

// apply ends the attempt with the outcome, in the handler.
func (o remoteOutcome) apply(job *Job) error {
	if o.err == nil && o.result != nil {
		return job.Result(o.result)
	}
	return o.err
}

// reported identifies an attempt whose worker has ended it, though the outcome could not be recorded.
type reported struct {
	ledger.Key
	version ledger.Version // of the offered event
	at      time.Time      // when that was recorded
	attempt ledger.Attempt
}

func (d *delivery) reported() reported {
	return reported{d.job.Key, d.job.Version, d.job.AvailableAt, d.job.Attempt}
}

// isReported reports whether the worker of an attempt that begins again has ended it, and sets its outcome. No worker
// gets the task once more.
func (p *gatewayPool) isReported(d *delivery) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.unrecorded[d.reported()]
	if before == nil {
		return false
	}
	delete(p.unrecorded, d.reported())
	d.isOver, d.outcome = true, before.outcome
	return true
}

// notTakenAfter is how long an attempt waits for a worker that asks for its kind. The slots of the kind follow the
// requests, so an attempt waits only if a request has ended meanwhile.
const notTakenAfter = 500 * time.Millisecond

// deliver is the handler of a kind of a gateway.
func (k *gatewayKind) deliver(ctx context.Context, _ pgx.Tx, job *Job, args []byte) error {
	d := &delivery{
		kind: k, job: job, args: args, number: rand.Text()[:10], given: make(chan struct{}),
		outcomes: make(chan remoteOutcome, 1), ended: make(chan struct{}),
	}
	job.delivery = d
	if k.pool.isReported(d) {
		return d.outcome.apply(job)
	}
	k.pool.enter(d)
	defer k.pool.leave(d)
	timer := time.NewTimer(notTakenAfter)
	defer timer.Stop()
	select {
	case <-d.given:
	case <-ctx.Done():
	case <-timer.C:
	}
	begun := time.Now()
	for {
		k.pool.extend(ctx, d)
		if errors.Is(context.Cause(ctx), ErrStopping) {
			k.pool.handedOver.Do(k.pool.handOver)
		}
		next, err := k.pool.check(ctx, d, begun)
		if err != nil {
			return err
		}
		timer.Reset(next)
		select {
		case o := <-d.outcomes:
			return o.apply(job)
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// seal makes the fence of an attempt that is given. The pool is locked.
func (d *delivery) seal() {
	p := d.kind.pool
	if d.kind.guarantee == ExactlyOnce { // it is ended in SQL
		d.fence = d.number
		return
	}
	f := fence{
		Key: d.job.Key, attempt: d.job.Attempt, version: d.job.run.found, isOnce: d.kind.guarantee == AtMostOnce,
		worker: p.pool.id, session: sessionHash(d.session.id), number: d.number, begun: time.Now(),
		offered: d.job.Version, offeredAt: d.job.AvailableAt,
	}
	if d.timeout > 0 {
		f.until = f.begun.Add(d.timeout)
	}
	if by := d.job.run.Task().Message.FinishBy; !by.IsZero() && (f.until.IsZero() || by.Before(f.until)) {
		f.until, f.isDeadline = by, true
	}
	d.fence = f.seal(*p.gateway.key.Load(), p.pool.config.Name)
}

// extend renews an attempt that would be lost, if a heartbeat of its session has reached another process.
func (p *gatewayPool) extend(ctx context.Context, d *delivery) {
	p.mu.Lock()
	isLost := !d.isOver && d.session != nil && d.kind.guarantee != ExactlyOnce && time.Now().After(d.expires)
	session := ""
	if isLost {
		session = p.pool.config.Name + "/" + d.session.id
	}
	p.mu.Unlock()
	if !isLost {
		return
	}
	left, err := lease.SessionHolds(ctx, p.pool.config.DB, session, d.number)
	if err != nil && ctx.Err() == nil {
		p.pool.config.Logger.WarnContext(ctx, "cannot read whether a worker reports to another process", "error", err)
	}
	if left > 0 {
		p.mu.Lock()
		d.expires = time.Now().Add(left)
		p.mu.Unlock()
	}
}

// check decides whether an attempt continues, and returns the time until the next check, or the error with which it
// ends.
func (p *gatewayPool) check(ctx context.Context, d *delivery, begun time.Time) (next time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch cause := context.Cause(ctx); {
	case d.isOver: // its outcome is in the channel
		return time.Hour, nil
	case d.session == nil:
		d.kind.waiting.Remove(d.waits)
		err = errNotTaken
	case d.isMoved:
		d.reason, err = remote.Fenced, ErrFenced
	case cause != nil:
		d.reason, err = remoteEnd(cause), cause
	case d.kind.guarantee == ExactlyOnce && now.After(d.expires):
		err = errNotTaken // no claim is recorded
	case now.After(d.expires):
		d.reason = remote.Unknown
		err = fmt.Errorf("%w for %s: worker %s, session %s", errLost, p.term(), d.session.worker, d.session.id)
	case d.timeout > 0 && now.Sub(begun) >= d.timeout:
		d.reason = remote.Timeout
		err = fmt.Errorf("%w after %s", ErrTimeout, d.timeout)
	default:
		next = time.Until(d.expires)
		if d.timeout > 0 {
			next = min(next, d.timeout-now.Sub(begun))
		}
		return max(next, time.Millisecond), nil
	}
	d.isOver = true
	return 0, err
}

// remoteEnd returns the reason for a cause of the end of a handler's context.
func remoteEnd(cause error) remote.End {
	switch {
	case errors.Is(cause, ErrCancelled):
		return remote.Cancelled
	case errors.Is(cause, ErrExpired):
		return remote.Deadline
	case errors.Is(cause, ErrTimeout):
		return remote.Timeout
	case errors.Is(cause, ErrFenced):
		return remote.Fenced
	}
	return remote.Unknown
}

// task returns the attempt for the answer to a worker.
func (d *delivery) task() remote.Task {
	m := &d.job.run.Task().Message
	t := remote.Task{
		AttemptRef: remote.AttemptRef{Key: d.job.Key, Attempt: d.job.Attempt, Fence: d.fence}, Version: d.job.Version,
		Args: d.args, Priority: d.job.run.priority.Level(), AvailableAt: d.job.AvailableAt, FinishBy: m.FinishBy,
		Timeout: d.timeout, Traceparent: d.job.Traceparent, Tracestate: d.job.Tracestate, Again: d.again,
	}
	if d.kind.guarantee == ExactlyOnce {
		t.Fence = ""
	}
	return t
}

// refuse ends an attempt with an error, which its worker no longer has. The pool is locked.
func (d *delivery) refuse(err error) {
	o := newRemoteOutcome(nil, err)
	d.isOver, d.outcome, d.reason = true, o, remote.Unknown
	d.outcomes <- o
}

// withoutContent returns what a repeated call needs of an ended attempt: neither args nor result. The pool is locked.
func (d *delivery) withoutContent() *delivery {
	job := &Job{Key: d.job.Key, Attempt: d.job.Attempt, Version: d.job.Version, AvailableAt: d.job.AvailableAt}
	outcome := remoteOutcome{err: d.outcome.err, digest: d.outcome.digest}
	end := attempt.End{Outcome: d.end.Outcome, State: d.end.State}
	return &delivery{
		kind: d.kind, job: job, ended: d.ended, session: d.session, fence: d.fence, isOver: true, outcome: outcome,
		reason: d.reason, end: end,
	}
}

// running returns an attempt that is at work, or nil.
func (p *gatewayPool) running(a remote.AttemptRef) *delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.fences[a.Fence]
	if d == nil || d.isOver || d.job.Key != a.Key || d.job.Attempt != a.Attempt || d.kind.guarantee == ExactlyOnce {
		return nil
	}
	return d
}

// end ends an attempt, which goes on to be recorded. It returns nil if the attempt is not in memory, or has ended with
// another outcome.
func (p *gatewayPool) end(a remote.AttemptRef, o remoteOutcome) *delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.fences[a.Fence]
	if d == nil {
		d = p.over[a.Fence]
	}
	if d == nil || d.job.Key != a.Key || d.job.Attempt != a.Attempt || d.kind.guarantee == ExactlyOnce {
		return nil
	}
	if !d.isOver {
		d.isOver, d.outcome = true, o
		d.outcomes <- o
	}
	if d.reason != "" || d.outcome.digest != o.digest {
		return nil
	}
	return d
}

// await waits until the outcome of an attempt is recorded, and returns the state of the task. It returns "" without an
// error if another outcome was recorded, or this one could not be.
func (d *delivery) await(ctx context.Context) (ledger.State, error) {
	select {
	case <-d.ended:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	switch o := d.end.Outcome; {
	case o == attempt.OutcomeRetried, // the ledger decides
		o == attempt.OutcomeFenced, o == attempt.OutcomeInterrupted,
		d.outcome.err == nil && o != attempt.OutcomeSucceeded:
		return "", nil
	}
	return d.end.State, nil
}
