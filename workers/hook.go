package workers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Hook contains functions that are called around the attempts of a pool ([Config].Hooks) or of a kind
// ([KindConfig].Hooks). Each may be nil. They must be safe for concurrent use.
//
// BeforeAttempt can end the attempt. The others receive only committed events and outcomes, at most once: a handler
// must enqueue required follow-up work in its transaction. A panic or runtime.Goexit in them is logged. A function that
// does not return within 5 s (or LeaseTTL, if that is shorter) is abandoned; until then the task stays in flight and
// the pool does not stop.
type Hook struct {
	// BeforeAttempt is called before each attempt, within its time and its transaction. It returns the context for
	// the next hook and finally for the handler: ctx or one derived from it; nil means ctx. tx is the handler's
	// transaction if it has a [pgx.Tx] or a sql.Tx, with the rules of [Handle], otherwise nil.
	//
	// An error or a panic ends the attempt as if the handler had returned it, including [SnoozeFor], [Discard] and
	// the like; the handler is not called. For an AtMostOnce kind that is safe to retry.
	BeforeAttempt func(ctx context.Context, tx pgx.Tx, job *Job) (context.Context, error)
	// AfterAttempt is called once after each attempt that began, whatever its outcome, even if a hook's BeforeAttempt
	// ended it. By then the outcome is committed, unless it was fenced or retried; the task is still in flight. In a
	// [Caller] the outcome is appended and not committed. ctx carries the values of the handler's context. Hooks are
	// called in reverse order.
	AfterAttempt func(ctx context.Context, job *Job, end AttemptEnd)
	// StateChanged is called for each event that the pool appended, after its commit, in the order of the task's
	// versions and before AfterAttempt; e.Type.State() is the state after it. It is not called for events of other
	// authors (producers, callers, operators, the scheduler), nor if the process ends first or the answer to the
	// commit is lost. The ledger contains all events.
	StateChanged func(ctx context.Context, e ledger.Event)
	// Noticed is called for something unusual about an offered task.
	Noticed func(ctx context.Context, kind ledger.Kind, n Notice)
}

// AttemptEnd is how an attempt ended.
type AttemptEnd struct {
	Outcome Outcome
	// State of the task after the attempt; "" if nothing was recorded: the attempt was fenced, or will be repeated.
	State ledger.State
	// Err is why the attempt did not succeed: the handler's error, a [*PanicError], or why its outcome was not
	// recorded. Nil if it succeeded, or if the handler returned nil too late.
	Err      error
	Began    time.Time     // by this machine's clock
	Duration time.Duration // of hooks, handler and the recording of the outcome
	// Waited is the time from [Job].AvailableAt to Began; the clocks of machines need not agree. It is 0 in a [Caller],
	// and if the attempt was taken over from a worker that is gone.
	Waited time.Duration
}

// PanicError is the panic of a handler, or of a BeforeAttempt.
type PanicError struct {
	Value any
	Stack []byte // at most 8 KiB of it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// hookList calls the hooks of a kind. It is constant, and safe for concurrent use.
type hookList struct {
	hooks  []Hook
	logger *slog.Logger
	grace  time.Duration // how long a call may take
}

func newHookList(hooks []Hook, logger *slog.Logger, grace time.Duration) *hookList {
	return &hookList{hooks: hooks, logger: logger, grace: grace}
}

// isUsed reports whether there is a hook to call.
func (l *hookList) isUsed() bool { return len(l.hooks) > 0 }

// hookCall is a call of one function of a hook.
type hookCall struct {
	name string // of the function
	call func(ctx context.Context)
}

// stateChanged adds the calls of StateChanged.
func (l *hookList) stateChanged(to []hookCall, e ledger.Event) []hookCall {
	for _, h := range l.hooks {
		if h.StateChanged != nil {
			to = append(to, hookCall{"StateChanged", func(ctx context.Context) { h.StateChanged(ctx, e) }})
		}
	}
	return to
}

// afterAttempt adds the calls of AfterAttempt, the last hook first.
func (l *hookList) afterAttempt(to []hookCall, job *Job, end AttemptEnd) []hookCall {
	for _, h := range slices.Backward(l.hooks) {
		if h.AfterAttempt != nil {
			to = append(to, hookCall{"AfterAttempt", func(ctx context.Context) { h.AfterAttempt(ctx, job, end) }})
		}
	}
	return to
}

// noticed returns the calls of Noticed.
func (l *hookList) noticed(kind ledger.Kind, n Notice) (calls []hookCall) {
	for _, h := range l.hooks {
		if h.Noticed != nil {
			calls = append(calls, hookCall{"Noticed", func(ctx context.Context) { h.Noticed(ctx, kind, n) }})
		}
	}
	return calls
}

// call makes calls one after another. A hook that panics, ends its goroutine or does not return cannot block the work
// or the calls after it.
func (l *hookList) call(ctx context.Context, calls []hookCall) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for len(calls) > 0 {
		calls = calls[l.callSome(ctx, calls):]
	}
}

// callSome makes calls in a goroutine of their own. It returns how many it made: all, or up to the first call that
// ended the goroutine or does not return.
func (l *hookList) callSome(ctx context.Context, calls []hookCall) (made int) {
	var now currentCall
	returned := make(chan int, 1)
	go func() {
		made := 0
		defer func() { returned <- made }() // even after runtime.Goexit
		for ; made < len(calls) && now.begin(made); made++ {
			l.callOne(ctx, calls[made], &made)
		}
	}()
	timer := time.NewTimer(l.grace)
	defer timer.Stop()
	for {
		select {
		case made := <-returned:
			return made
		case <-timer.C:
		}
		i, left := now.abandonAfter(l.grace)
		if left <= 0 {
			l.logger.ErrorContext(
				ctx, "abandoned a hook that does not return", "hook", calls[i].name,
			)
			return i + 1
		}
		timer.Reset(left)
	}
}

// callOne makes one call. It logs a panic, and counts a call that ends the goroutine as made.
func (l *hookList) callOne(ctx context.Context, c hookCall, made *int) {
	hasReturned := false
	defer func() {
		v := recover()
		if v != nil || !hasReturned {
			l.logger.ErrorContext(ctx, "hook panicked or called runtime.Goexit",
				"hook", c.name, "panic", v)
		}
		if v == nil && !hasReturned {
			*made++
		}
	}()
	c.call(ctx)
	hasReturned = true
}

// currentCall is the call that a goroutine makes. It is safe for concurrent use; mu guards all fields.
type currentCall struct {
	mu        sync.Mutex
	index     int
	beganAt   time.Time
	abandoned bool
}

// begin stores that a call begins. It returns false if the goroutine was abandoned in the call before.
func (c *currentCall) begin(index int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned {
		return false
	}
	c.index, c.beganAt = index, time.Now()
	return true
}

// abandonAfter abandons the goroutine if its call takes longer than grace. It returns the call and how much of grace
// is left to it.
func (c *currentCall) abandonAfter(grace time.Duration) (index int, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.beganAt.IsZero() {
		left = grace - time.Since(c.beganAt)
	} else {
		left = grace // the goroutine has not run yet
	}
	c.abandoned = left <= 0
	return c.index, left
}
