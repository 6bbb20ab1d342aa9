package workers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Hook is called around the attempts of a pool ([Config].Hooks) or of a kind ([KindConfig].Hooks). Embed
// [HookDefaults] and write the methods that are needed: the compiler checks them, and later versions may add others.
// Its methods must be safe for concurrent use.
//
// BeforeAttempt can end the attempt. The others only receive what is committed, at most once: a handler must enqueue
// required follow-up work in its transaction. A panic or runtime.Goexit in them is logged. A hook that does not
// return within 5 s (or AckWait, if that is shorter) is abandoned; until then the message is not answered and the
// pool does not stop.
type Hook interface {
	// BeforeAttempt is called before each attempt, within its time and its transaction. It returns the context for
	// the next hook and finally for the handler: ctx or one derived from it; nil means ctx. tx is the handler's
	// transaction if the kind is ExactlyOnce, with the rules of [Register], otherwise nil.
	//
	// An error or a panic ends the attempt as if the handler had returned it, including [SnoozeFor], [Discard] and
	// the like; the handler is not called. For an AtMostOnce kind that is safe to retry.
	BeforeAttempt(ctx context.Context, tx pgx.Tx, job *Job) (context.Context, error)
	// AfterAttempt is called once after each attempt that began, whatever its outcome, also if a hook's BeforeAttempt
	// ended it. By then the outcome is committed, unless it was fenced or retried; the message is not answered yet.
	// In a [Caller] the outcome is appended and not committed. ctx has the values of the handler's context. Hooks are
	// called in reverse order.
	AfterAttempt(ctx context.Context, job *Job, end AttemptEnd)
	// StateChanged is called for each event that the pool appended, after its commit, in the order of the task's
	// versions and before AfterAttempt; e.Type.State() is the state after it. It is not called for events of other
	// authors (producers, callers, operators, the scheduler), nor if the process ends first or the answer to the
	// commit is lost. The stream has all events.
	StateChanged(ctx context.Context, e ledger.Event)
	// Noticed is called for unusual deliveries of messages.
	Noticed(ctx context.Context, kind ledger.Kind, n Notice)

	embedsHookDefaults()
}

// HookDefaults is a [Hook] that does nothing, to be embedded.
type HookDefaults struct{}

// BeforeAttempt returns ctx.
func (HookDefaults) BeforeAttempt(ctx context.Context, _ pgx.Tx, _ *Job) (context.Context, error) {
	return ctx, nil
}

// AfterAttempt does nothing.
func (HookDefaults) AfterAttempt(context.Context, *Job, AttemptEnd) {}

// StateChanged does nothing.
func (HookDefaults) StateChanged(context.Context, ledger.Event) {}

// Noticed does nothing.
func (HookDefaults) Noticed(context.Context, ledger.Kind, Notice) {}

func (HookDefaults) embedsHookDefaults() {}

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
}

// PanicError is the panic of a handler, or of a BeforeAttempt.
type PanicError struct {
	Value any
	Stack []byte // at most 8 KiB of it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// withoutNil returns the hooks that are not nil.
func withoutNil(hooks []Hook) []Hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h Hook) bool { return h == nil })
}

// hookList calls the hooks of a kind. It is constant, and safe for concurrent use.
type hookList struct {
	hooks    []Hook
	reversed []Hook // the last one first
	logger   *slog.Logger
	grace    time.Duration // how long a hook may take
}

// newHookList returns the hooks that are not nil.
func newHookList(hooks []Hook, logger *slog.Logger, grace time.Duration) *hookList {
	l := &hookList{hooks: withoutNil(hooks), logger: logger, grace: grace}
	l.reversed = slices.Clone(l.hooks)
	slices.Reverse(l.reversed)
	return l
}

// isUsed reports whether there is a hook to call.
func (l *hookList) isUsed() bool { return len(l.hooks) > 0 }

// notify calls every hook.
func (l *hookList) notify(ctx context.Context, call func(context.Context, Hook)) {
	for left := l.hooks; len(left) > 0; {
		left = left[l.callAll(ctx, left, call):]
	}
}

// notifyReversed calls every hook, the last one first.
func (l *hookList) notifyReversed(ctx context.Context, call func(context.Context, Hook)) {
	for left := l.reversed; len(left) > 0; {
		left = left[l.callAll(ctx, left, call):]
	}
}

// callAll calls hooks in a goroutine of their own, so that no hook can block the work. It returns how many were
// called: all, or up to the first one that ended the goroutine or does not return.
func (l *hookList) callAll(ctx context.Context, hooks []Hook, call func(context.Context, Hook)) int {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var current atomic.Int32 // index of the hook that is called, or abandoned: no further one is to be called
	const abandoned = -1
	returned := make(chan bool, len(hooks))
	go func() {
		for i, h := range hooks {
			ok := l.callOne(
				ctx, h, call, func() bool { return current.CompareAndSwap(int32(i), int32(i+1)) }, returned,
			)
			if !ok {
				return
			}
		}
	}()
	timer := time.NewTimer(l.grace)
	defer timer.Stop()
	for i := 0; i < len(hooks); {
		select {
		case ok := <-returned:
			if i++; !ok {
				return i
			}
			timer.Reset(l.grace)
		case <-timer.C:
			if current.CompareAndSwap(int32(i), abandoned) {
				l.logger.ErrorContext(ctx, "abandoned a hook that does not return", "hook", fmt.Sprintf("%T", hooks[i]))
				return i + 1
			} // otherwise it has just returned
		}
	}
	return len(hooks)
}

// callOne calls a hook, and sends whether it returned, unless it was abandoned. It reports whether the next hook is
// to be called.
func (l *hookList) callOne(
	ctx context.Context, h Hook, call func(context.Context, Hook), done func() bool, returned chan<- bool,
) (ok bool) {
	defer func() {
		if v := recover(); v != nil || !ok {
			l.logger.ErrorContext(ctx, "hook panicked or called runtime.Goexit",
				"hook", fmt.Sprintf("%T", h), "panic", v)
			ok = false
		}
		if done() {
			returned <- ok
		} else {
			ok = false
		}
	}()
	call(ctx, h)
	return true
}
