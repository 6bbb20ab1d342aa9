package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// run is one attempt as package workers sees it: the job for its handler, and the hooks of its kind. It is the
// attempt.Work of its attempt.
type run struct {
	*attempt.Attempt
	kind *kind // constant
	// waited is how long the task had been available when its head was read, by the database's clock; 0: unknown
	waited   time.Duration   // constant
	priority ledger.Priority // constant
	// seen is the time since which the dispatcher's view of the task may be out of date. Zero: this worker has read the
	// task's head.
	seen  time.Time      // set before the run is ready
	found ledger.Version // of the task's last event when the attempt was decided; constant
	job   Job            // written by newRun and, before the handler runs, by its goroutine; Job guards its result

	mu     sync.Mutex
	values context.Context // of the handler, if hooks derived one from the attempt's; guarded by mu
}

// newRun returns an attempt at a task, for the verdict on its head.
func (k *kind) newRun(t *attempt.Task, v attempt.Verdict, h attempt.Head, decided time.Time) *run {
	r := &run{kind: k, priority: h.Priority, found: h.Version}
	r.Attempt = attempt.New(k.Kind, t, v, h, decided, r)
	if h.Version == t.Message.Version && v != attempt.TakeOver { // otherwise an attempt has begun since
		r.waited = max(1, h.Clock.Sub(h.RecordedAt))
	}
	r.setJob()
	return r
}

// setJob fills in the job of the attempt.
func (r *run) setJob() {
	m := &r.Task().Message
	r.job = Job{
		Key: m.Key, Version: m.Version, AvailableAt: m.RecordedAt, Traceparent: m.Traceparent, Tracestate: m.Tracestate,
		Envelope: m.Envelope, run: r,
	}
}

// Cause implements [ledger.Cause].
func (r *run) Cause() (event, traceparent, tracestate string) { return r.job.Cause() }

// Call runs the BeforeAttempt hooks and the handler. It returns a panic as a [*PanicError].
func (r *run) Call(ctx context.Context, tx pgx.Tx) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			err = &PanicError{Value: v, Stack: stack[:min(len(stack), attempt.MaxStack)]}
		}
	}()
	r.job.Attempt = r.Number()
	ctx, err = r.before(ctx, tx)
	if err == nil && !r.Enter() {
		err = errAbandoned
	}
	if err == nil {
		err = r.kind.handler(ctx, tx, &r.job, r.Task().Message.Payload)
	}
	if err != nil {
		_ = err.Error() // an Error method that panics, for example on a nil pointer, does so here
	}
	return err
}

// before calls the BeforeAttempt hooks and returns the handler's context.
func (r *run) before(ctx context.Context, tx pgx.Tx) (context.Context, error) {
	for _, h := range r.kind.hooks.hooks {
		if h.BeforeAttempt == nil {
			continue
		}
		next, err := h.BeforeAttempt(ctx, tx, &r.job)
		if next != nil {
			ctx = next
			r.mu.Lock()
			r.values = ctx
			r.mu.Unlock()
		}
		if err != nil {
			return nil, fmt.Errorf("hook: %w", err)
		}
	}
	if r.kind.hooks.isUsed() { // they may have used up the attempt's time
		if cause := context.Cause(r.Context()); cause != nil {
			return nil, cause
		}
	}
	return ctx, nil
}

// Result returns the value that the handler passed to [Job.Result].
func (r *run) Result() json.RawMessage { return r.job.loadResult() }

// Started calls the hooks.
func (r *run) Started(e ledger.Event) {
	if r.kind.hooks.isUsed() {
		r.kind.hooks.call(r.hookContext(), r.kind.hooks.stateChanged(nil, e))
	}
}

// TakenOver calls the hooks.
func (r *run) TakenOver() { r.kind.noticed(NoticeTakenOver) }

// Ended counts the attempt's outcome, and calls the hooks for its events and, if it has begun, for its end.
func (r *run) Ended(end attempt.End) {
	r.kind.counts.addAttempt(end.Outcome)
	if r.kind.ended != nil {
		r.kind.ended(&r.job, end)
	}
	if r.kind.hooks.isUsed() {
		r.notifyEnded(end)
	}
}

// notifyEnded is separate from Ended because its argument escapes to the heap.
func (r *run) notifyEnded(e attempt.End) {
	hooks := r.kind.hooks
	calls := make([]hookCall, 0, (len(e.Events)+1)*len(hooks.hooks))
	for _, event := range e.Events {
		calls = hooks.stateChanged(calls, event)
	}
	if !e.Began.IsZero() {
		end := AttemptEnd{Outcome: Outcome(e.Outcome), State: e.State, Err: e.Err, Began: e.Began, Duration: e.Duration}
		if r.waited > 0 {
			end.Waited = r.waited + e.Began.Sub(r.Decided())
		}
		if end.Outcome == OutcomeFenced || end.Outcome == OutcomeRetried {
			end.State = ""
		}
		calls = hooks.afterAttempt(calls, &r.job, end)
	}
	hooks.call(r.hookContext(), calls)
}

// hookContext returns the context whose values the hooks get: the handler's, or the pool's if the attempt has not
// begun.
func (r *run) hookContext() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch ctx := r.Context(); {
	case r.values != nil:
		return r.values
	case ctx != nil:
		return ctx
	}
	return r.kind.HandlerContext()
}
