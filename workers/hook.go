package workers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// BeforeAttemptHook is what [Config].Hooks and [KindConfig].Hooks may hold: it is called before each
// attempt, in the attempt's time.
type BeforeAttemptHook interface {
	// BeforeAttempt returns the context that the next hook gets, and at last the handler: ctx or one
	// made of it; nil is ctx. tx is the handler's transaction if the kind is ExactlyOnce, subject to
	// what [Register] says, and nil if it is not.
	//
	// An error, or a panic, ends the attempt as if the handler had returned it, and its words hold
	// ([SnoozeFor], [Discard], …); the handler is not called. To an AtMostOnce kind that is safe to
	// retry.
	BeforeAttempt(ctx context.Context, tx pgx.Tx, job *Job) (context.Context, error)
}

// AfterAttemptHook is another: it is called once after each attempt that began, however it ended.
type AfterAttemptHook interface {
	// AfterAttempt is called when the outcome is committed, or when nothing was to be, and before the
	// message is answered; in a [Caller], when the outcome is appended. ctx has the values of the handler's, and lasts 5 s (or AckWait, if that is
	// shorter). It is called also if a hook's BeforeAttempt ended the attempt, that of this one or of
	// one before it.
	AfterAttempt(ctx context.Context, job *Job, end AttemptEnd)
}

// StateHook is another: it is told what becomes of tasks here.
type StateHook interface {
	// StateChanged is called for each event that the pool appended, after its commit, in the order of
	// the task's versions and before AfterAttempt; e.Type.State() is the state after it. What others
	// append (producers and callers, operators, the scheduler) it does not hear, nor what this process did not
	// live to tell, or did not get an answer about: the stream has all events.
	StateChanged(ctx context.Context, e ledger.Event)
}

// NoticeHook is another: it is told of messages that are more than a wake-up call, for metrics.
type NoticeHook interface {
	Noticed(ctx context.Context, kind ledger.Kind, n Notice)
}

// Notice is what is odd about a message.
type Notice string

// The notices.
const (
	NoticeRedelivered Notice = "redelivered" // it came for the second time or later
	NoticeAdopted     Notice = "adopted"     // it came again for a task that this process has in hand
	NoticeGhost       Notice = "ghost"       // refused: the ledger does not have its event
	NoticeMalformed   Notice = "malformed"   // refused: it is none of ours
	NoticeTakenOver   Notice = "taken_over"  // its task was taken from a worker that is gone

	NoticeFetcherRuns Notice = "fetcher_runs" // its task is run beyond the slots ([FetcherRuns])
	NoticeGivenBack   Notice = "given_back"   // its task waited here for too long and was given back
)

// AttemptEnd is how an attempt ended.
type AttemptEnd struct {
	Outcome Outcome
	// State of the task now; "" if nothing was recorded: the attempt was fenced, or is to be
	// repeated.
	State ledger.State
	// Err is why it did not succeed: what the handler returned, a [*PanicError], or why its outcome
	// was not recorded. Nil if it succeeded, or if the handler returned nil and was too late.
	Err      error
	Began    time.Time     // by this machine's clock
	Duration time.Duration // in hooks, in the handler and in recording the outcome
}

// PanicError is the panic of a handler, or of a hook before it.
type PanicError struct {
	Value any
	Stack []byte // at most 8 KiB of it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// hooks are those of a kind: the pool's, and then its own.
type hooks struct {
	before []BeforeAttemptHook
	after  []AfterAttemptHook // the last one first
	state  []StateHook
	notice []NoticeHook
}

// newHooks sorts hooks by what they hear.
func newHooks(all ...any) hooks {
	var s hooks
	for _, h := range all {
		if hook, ok := h.(BeforeAttemptHook); ok {
			s.before = append(s.before, hook)
		}
		if hook, ok := h.(AfterAttemptHook); ok {
			s.after = append(s.after, hook)
		}
		if hook, ok := h.(StateHook); ok {
			s.state = append(s.state, hook)
		}
		if hook, ok := h.(NoticeHook); ok {
			s.notice = append(s.notice, hook)
		}
	}
	slices.Reverse(s.after)
	return s
}

// hear reports whether hooks are told how attempts end.
func (s *hooks) hear() bool { return len(s.after)+len(s.state) > 0 }

// hookMethods are the methods of hooks, by name.
var hookMethods = map[string]reflect.Type{
	"BeforeAttempt": reflect.TypeFor[BeforeAttemptHook](),
	"AfterAttempt":  reflect.TypeFor[AfterAttemptHook](),
	"StateChanged":  reflect.TypeFor[StateHook](),
	"Noticed":       reflect.TypeFor[NoticeHook](),
}

// checkHooks returns an error for each that is no hook, or would be but for the form of a method. Nil
// is passed over.
func checkHooks(all []any) error {
	var faults []error
	for i, h := range all {
		if h == nil {
			continue
		}
		t, known := reflect.TypeOf(h), false
		for name, hook := range hookMethods {
			if t.Implements(hook) {
				known = true
			} else if m, ok := t.MethodByName(name); ok {
				known = true
				faults = append(faults, fmt.Errorf("hook %d: the method %s of %s must be that of %s, is %s", i, name, t, hook, m.Type))
			}
		}
		if !known {
			faults = append(faults, fmt.Errorf("hook %d: %s is no hook: it has none of the methods BeforeAttempt, AfterAttempt, StateChanged, Noticed", i, t))
		}
	}
	return errors.Join(faults...)
}

// before calls the hooks before an attempt and returns the handler's context.
func (a *attempt) before(tx pgx.Tx) (context.Context, error) {
	ctx := a.ctx
	if len(a.kind.hooks.before) == 0 {
		a.entered.Store(true)
		return ctx, nil
	}
	for _, h := range a.kind.hooks.before {
		next, err := h.BeforeAttempt(ctx, tx, &a.job)
		if next != nil {
			ctx = next
			a.mu.Lock()
			a.values = ctx
			a.mu.Unlock()
		}
		if err != nil {
			return nil, fmt.Errorf("hook %T: %w", h, err)
		}
	}
	if cause := context.Cause(a.ctx); cause != nil { // the hooks took all its time
		return nil, cause
	}
	a.entered.Store(true)
	if a.over.Load() { // abandoned by who may not have seen that
		return nil, errOver
	}
	return ctx, nil
}

// ended counts how an attempt ended, and tells the hooks if it had begun.
func (k *kind) ended(a *attempt, o Outcome, err error) {
	k.counts.attempt(o)
	if a.caller != nil {
		a.caller.outcome, a.caller.err = o, err
	}
	a.after(o, err)
}

// after calls the hooks after an attempt.
func (a *attempt) after(o Outcome, err error) {
	k := a.kind
	if len(k.hooks.after) == 0 || a.begun.IsZero() {
		return
	}
	end := AttemptEnd{Outcome: o, State: a.state, Err: a.err, Began: a.begun, Duration: a.took()}
	if end.Err == nil {
		end.Err = err
	}
	if o == OutcomeFenced || o == OutcomeRetried {
		end.State = ""
	}
	for _, h := range k.hooks.after {
		k.tell(a.context(), h, func(ctx context.Context) { h.AfterAttempt(ctx, &a.job, end) })
	}
}

// appended notes an event of the attempt that is committed, and tells the hooks.
func (a *attempt) appended(e ledger.Event) {
	a.state = e.Type.State()
	switch {
	case a.caller != nil:
		a.caller.version = e.Version // it is not committed, and may never be
	case len(a.kind.hooks.state) > 0:
		a.changed(e)
	}
}

func (a *attempt) changed(e ledger.Event) {
	for _, h := range a.kind.hooks.state {
		a.kind.tell(a.context(), h, func(ctx context.Context) { h.StateChanged(ctx, e) })
	}
}

// noticed counts what is odd about a message, and tells the hooks.
func (k *kind) noticed(n Notice) {
	k.counts.notice(n)
	for _, h := range k.hooks.notice {
		k.tell(k.pool.work, h, func(ctx context.Context) { h.Noticed(ctx, k.name, n) })
	}
}

// context is what hooks get besides the handler: the values of the handler's context, or of the
// pool's if the attempt has not begun.
func (a *attempt) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.values != nil:
		return a.values
	case a.ctx != nil:
		return a.ctx
	}
	return a.kind.pool.work
}

// tell calls a hook that has no say. It does so in a goroutine of its own, so that the work goes on
// whatever the hook does: panics, ends its goroutine, or does not return in time.
func (k *kind) tell(ctx context.Context, hook any, call func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.pool.abandonAfter())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if v := recover(); v != nil || !returned {
				k.logger.Error("hook ended by itself", "hook", fmt.Sprintf("%T", hook), "panic", v)
			}
		}()
		call(ctx)
		returned = true
	}()
	select {
	case <-done:
	case <-ctx.Done():
		k.logger.Error("hook does not return: it is left behind", "hook", fmt.Sprintf("%T", hook))
	}
}
