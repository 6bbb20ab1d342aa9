package workers_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// witness records the calls of its hook.
type witness struct {
	mu     sync.Mutex
	before int
	ends   []workers.AttemptEnd
	events []ledger.Event
}

func (w *witness) hook() workers.Hook {
	return workers.Hook{BeforeAttempt: w.beforeAttempt, AfterAttempt: w.afterAttempt, StateChanged: w.stateChanged}
}

func (w *witness) beforeAttempt(ctx context.Context, _ pgx.Tx, _ *workers.Job) (context.Context, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before++
	return ctx, nil
}

func (w *witness) afterAttempt(_ context.Context, _ *workers.Job, end workers.AttemptEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, end)
}

func (w *witness) stateChanged(_ context.Context, e ledger.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// ended returns the number of attempts that have ended.
func (w *witness) ended() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ends)
}

// ledgerAgrees checks that a hook received each event that the worker appended to a task, in order, and one end of
// each attempt whose beginning it received.
func (w *witness) ledgerAgrees(b *bundle, worker *worker, k ledger.Key) {
	b.T.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var want, got []ledger.Version
	for _, e := range b.History(k) {
		if e.Actor == worker.ID() {
			want = append(want, e.Version)
		}
	}
	for _, e := range w.events {
		got = append(got, e.Version)
	}
	if diff := difference.Of(want, got); diff != "" {
		b.T.Errorf("events of the hook (-want +got):\n%s\n%v", diff, b.EventTypes(k))
	}
	if w.before != len(w.ends) {
		b.T.Errorf("%d attempts began, %d ended: %+v", w.before, len(w.ends), w.ends)
	}
}

// Hooks receive the recorded outcome of each attempt once, whatever it is.
func TestHooksReceiveOutcomes(t *testing.T) {
	t.Parallel()
	type handler func(ctx context.Context, b *bundle, job *workers.Job) error
	untilDone := func(ctx context.Context, _ *bundle, _ *workers.Job) error {
		<-ctx.Done()
		return ctx.Err()
	}
	once := func(h handler) handler { // and succeeds after that
		return func(ctx context.Context, b *bundle, job *workers.Job) error {
			if job.Attempt == 1 {
				return h(ctx, b, job)
			}
			return nil
		}
	}
	tests := map[string]struct {
		handler handler
		config  workers.KindConfig
		stop    bool // stops the pool once the handler runs
		want    []workers.Outcome
		state   ledger.State // after the last attempt
		err     string
	}{
		"success": {
			handler: func(context.Context, *bundle, *workers.Job) error { return nil },
			config:  workers.KindConfig{},
			stop:    false,
			want:    []workers.Outcome{workers.OutcomeSucceeded},
			state:   ledger.StateSucceeded,
			err:     "",
		},
		"error": {
			handler: once(func(context.Context, *bundle, *workers.Job) error { return errBoom }),
			config:  workers.KindConfig{},
			stop:    false,
			want:    []workers.Outcome{workers.OutcomeFailed, workers.OutcomeSucceeded},
			state:   ledger.StateSucceeded,
			err:     "boom",
		},
		"panic": {
			handler: once(func(context.Context, *bundle, *workers.Job) error { panic("at the disco") }),
			config:  workers.KindConfig{},
			stop:    false,
			want:    []workers.Outcome{workers.OutcomeFailed, workers.OutcomeSucceeded},
			state:   ledger.StateSucceeded,
			err:     "panic: at the disco",
		},
		"goexit": {
			handler: once(func(context.Context, *bundle, *workers.Job) error { runtime.Goexit(); return nil }),
			config:  workers.KindConfig{},
			stop:    false,
			want:    []workers.Outcome{workers.OutcomeFailed, workers.OutcomeSucceeded},
			state:   ledger.StateSucceeded,
			err:     "runtime.Goexit",
		},
		"permanent": {
			handler: func(context.Context, *bundle, *workers.Job) error { return workers.Permanent(errBoom) },
			config:  workers.KindConfig{},
			stop:    false,
			want:    []workers.Outcome{workers.OutcomeBuried},
			state:   ledger.StateDead,
			err:     "boom",
		},
		"snooze": {
			handler: func(context.Context, *bundle, *workers.Job) error { return workers.SnoozeFor(time.Hour) },
			config:  workers.KindConfig{},
			stop:    false,
			want:    []workers.Outcome{workers.OutcomeSnoozed},
			state:   ledger.StateScheduled,
			err:     "snoozed",
		},
		"discard": {
			handler: func(context.Context, *bundle, *workers.Job) error { return workers.Discard("too old") },
			config:  workers.KindConfig{},
			stop:    false,
			want:    []workers.Outcome{workers.OutcomeDiscarded},
			state:   ledger.StateDiscarded,
			err:     "too old",
		},
		"does not return": {
			handler: once(func(ctx context.Context, b *bundle, _ *workers.Job) error {
				<-b.Context().Done() // until the test ends
				return nil
			}),
			config: *workers.SetStartedAfter(
				10*time.Millisecond, workers.KindConfig{Timeout: 100 * time.Millisecond},
			),
			stop:  false,
			want:  []workers.Outcome{workers.OutcomeFailed, workers.OutcomeSucceeded},
			state: ledger.StateSucceeded,
			err:   "did not return",
		},
		"cancelled": {handler: func(ctx context.Context, b *bundle, job *workers.Job) error {
			if _, err := b.Operator().Cancel(ctx, job.Key, audit); err != nil {
				return err
			}
			return untilDone(ctx, b, job)
		}, want: []workers.Outcome{workers.OutcomeFenced}, err: "canceled"},
		"shutdown": {handler: untilDone, config: workers.KindConfig{}, stop: true,
			want: []workers.Outcome{workers.OutcomeInterrupted}, state: ledger.StateAvailable, err: "canceled"},
	}
	b := setup(t)
	b.Dispatch()
	for name, test := range tests {
		for guarantee, register := range map[string]func(*bundle) func(*workers.Pool) error{
			"exactly once": func(b *bundle) func(*workers.Pool) error {
				return b.exactly(func(ctx context.Context, _ pgx.Tx, job *workers.Job, _ orderArgs) error {
					return test.handler(ctx, b, job)
				}, &test.config)
			},
			"at least once": func(b *bundle) func(*workers.Pool) error {
				handler := func(ctx context.Context, job *workers.Job, _ orderArgs) error {
					return test.handler(ctx, b, job)
				}
				return b.atLeast(handler, &test.config)
			},
		} {
			t.Run(name+" "+guarantee, func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				hook := &witness{}
				w := b.Work(
					workers.Config{Hooks: []workers.Hook{hook.hook()}, StopTimeout: time.Millisecond}, register(b),
				)
				k := b.Enqueue("o-1")
				if test.stop {
					b.Await("the handler to run", func() bool { return w.KindStatus().Running == 1 })
					w.Stop()
				}
				b.Await("the ends of its attempts", func() bool { return hook.ended() == len(test.want) })
				hook.ledgerAgrees(b, w, k)
				var got []workers.Outcome
				for _, end := range hook.ends {
					got = append(got, end.Outcome)
					if end.Began.IsZero() || end.Duration <= 0 || end.Waited <= 0 {
						t.Errorf("%+v has no time", end)
					}
				}
				if diff := difference.Of(test.want, got); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
				if last := hook.ends[len(got)-1]; last.State != test.state {
					t.Errorf("the state is %q in the end, want %q", last.State, test.state)
				}
				if first := fmt.Sprint(hook.ends[0].Err); test.err != "" && !strings.Contains(first, test.err) ||
					test.err == "" && hook.ends[0].Err != nil {
					t.Errorf("the first error is %q, want one with %q", first, test.err)
				}
			})
		}
	}
}

// tracer is a hook that records the order in which hooks are called, and passes on a value.
type tracer struct {
	name string
	note func(string)
}

type traceKey struct{}

func (h tracer) hook() workers.Hook {
	return workers.Hook{BeforeAttempt: h.beforeAttempt, AfterAttempt: h.afterAttempt}
}

func (h tracer) beforeAttempt(ctx context.Context, tx pgx.Tx, _ *workers.Job) (context.Context, error) {
	h.note("before " + h.name)
	said, _ := ctx.Value(traceKey{}).(string)
	_, err := tx.Exec(ctx, "select set_config('test.hook', $1, true)", said+h.name)
	return context.WithValue(ctx, traceKey{}, said+h.name), err
}

func (h tracer) afterAttempt(ctx context.Context, _ *workers.Job, _ workers.AttemptEnd) {
	h.note("after " + h.name + " of " + ctx.Value(traceKey{}).(string))
}

// beforeOnly returns a hook with one function that does not change the context.
func beforeOnly(call func(tx pgx.Tx) error) workers.Hook {
	return workers.Hook{BeforeAttempt: func(_ context.Context, tx pgx.Tx, _ *workers.Job) (context.Context, error) {
		return nil, call(tx)
	}}
}

// Hooks are nested: the pool's around the kind's, and both around the handler. The handler sees the values and the
// settings that they set in its context and its transaction.
func TestHooksAreAroundTheHandler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var mu sync.Mutex
	var calls []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, s)
	}
	b.Work(
		workers.Config{Hooks: []workers.Hook{
			tracer{name: "a", note: note}.hook(), {}, tracer{name: "b", note: note}.hook(),
		}},
		b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			var set string
			if err := tx.QueryRow(ctx, "select current_setting('test.hook')").Scan(&set); err != nil {
				return err
			}
			note("handler of " + ctx.Value(traceKey{}).(string) + " " + set)
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{Hooks: []workers.Hook{
			tracer{name: "c", note: note}.hook(), beforeOnly(func(pgx.Tx) error { return nil }),
		}}),
	)
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	want := []string{
		"before a",
		"before b",
		"before c",
		"handler of abc abc",
		"after c of abc",
		"after b of abc",
		"after a of abc",
	}
	b.Await("all hooks", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(calls) >= len(want)
	})
	if diff := difference.Of(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	b.WantOneEffect(k)
}

// A BeforeAttempt hook ends an attempt as if it were the handler, which is not called. Since the handler has had no
// effect, an AtMostOnce task may be tried again.
func TestHookBeforeAnAttemptEndsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Schedule()
	for name, test := range map[string]struct {
		hook func(tx pgx.Tx) error
		want []ledger.EventType // until it is available again
	}{
		"error": {
			hook: func(pgx.Tx) error { return errBoom },
			want: []ledger.EventType{ledger.EventFailed, ledger.EventReleased},
		},
		"panic": {
			hook: func(pgx.Tx) error { panic("at the disco") },
			want: []ledger.EventType{ledger.EventFailed, ledger.EventReleased},
		},
		"goexit": {
			hook: func(pgx.Tx) error { runtime.Goexit(); return nil },
			want: []ledger.EventType{ledger.EventFailed, ledger.EventReleased},
		},
		"commit": {hook: func(tx pgx.Tx) error {
			if tx == nil {
				return workers.ErrNotYours
			}
			return tx.Commit(context.Background())
		}, want: []ledger.EventType{ledger.EventFailed, ledger.EventReleased}},
		"snooze": {
			hook: func(pgx.Tx) error { return workers.SnoozeFor(time.Millisecond) },
			want: []ledger.EventType{ledger.EventSnoozed, ledger.EventReleased},
		},
	} {
		type registerFunc = func(b *bundle, h func() error, c *workers.KindConfig) func(*workers.Pool) error
		for guarantee, register := range map[string]registerFunc{
			"exactly once": func(b *bundle, h func() error, c *workers.KindConfig) func(*workers.Pool) error {
				return b.exactly(func(context.Context, pgx.Tx, *workers.Job, orderArgs) error { return h() }, c)
			},
			"at most once": func(b *bundle, h func() error, c *workers.KindConfig) func(*workers.Pool) error {
				return b.atMost(func(context.Context, *workers.Job, orderArgs) error { return h() }, c)
			},
		} {
			t.Run(name+" "+guarantee, func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				var hooked, handled atomic.Int32
				hook := beforeOnly(func(tx pgx.Tx) error {
					if hooked.Add(1) == 1 {
						return test.hook(tx)
					}
					return nil
				})
				outer, inner := &witness{}, &witness{}
				w := b.Work(
					workers.Config{Hooks: []workers.Hook{outer.hook()}},
					register(b, func() error { handled.Add(1); return nil },
						&workers.KindConfig{Hooks: []workers.Hook{hook, inner.hook()}}),
				)
				k := b.Enqueue("o-1")
				b.AwaitState(k, ledger.StateSucceeded)
				b.Await("the ends of both attempts", func() bool { return outer.ended() == 2 && inner.ended() == 2 })
				outer.ledgerAgrees(b, w, k)
				if handled.Load() != 1 {
					t.Errorf("the handler was called %d times", handled.Load())
				}
				got := slices.DeleteFunc(
					b.EventTypes(k), func(e ledger.EventType) bool { return e == ledger.EventStarted },
				)
				want := slices.Concat(
					[]ledger.EventType{ledger.EventEnqueued}, test.want, []ledger.EventType{ledger.EventSucceeded},
				)
				if diff := difference.Of(want, got); diff != "" {
					t.Errorf("events but for starts (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// badHook misbehaves in all functions that cannot change the outcome.
type badHook struct {
	misbehave func(ctx context.Context)
	calls     atomic.Int32
}

func (h *badHook) hook() workers.Hook {
	return workers.Hook{AfterAttempt: h.afterAttempt, StateChanged: h.stateChanged}
}

func (h *badHook) afterAttempt(ctx context.Context, _ *workers.Job, _ workers.AttemptEnd) {
	h.calls.Add(1)
	h.misbehave(ctx)
}

func (h *badHook) stateChanged(ctx context.Context, _ ledger.Event) {
	h.calls.Add(1)
	h.misbehave(ctx)
}

// A hook that misbehaves after an attempt changes nothing for the tasks or for the other hooks.
func TestHooksThatMisbehave(t *testing.T) {
	t.Parallel()
	never := make(chan struct{}) // until the test ends
	t.Cleanup(func() { close(never) })
	b := setup(t)
	b.Dispatch()
	for name, misbehave := range map[string]func(context.Context){
		"panics":      func(context.Context) { panic("at the disco") },
		"exits":       func(context.Context) { runtime.Goexit() },
		"waits":       func(ctx context.Context) { <-ctx.Done() },
		"blocks":      func(context.Context) { <-never },
		"nil pointer": func(context.Context) { var e error; _ = e.Error() },
	} {
		for guarantee, register := range map[string]func(b *bundle) func(*workers.Pool) error{
			"exactly once":  func(b *bundle) func(*workers.Pool) error { return b.exactly(insertEffect, nil) },
			"at least once": func(b *bundle) func(*workers.Pool) error { return b.atLeast(b.outside, nil) },
		} {
			t.Run(name+" "+guarantee, func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				const tasks = 3
				bad, good := &badHook{misbehave: misbehave}, &witness{}
				w := b.Work(workers.Config{Hooks: []workers.Hook{good.hook(), bad.hook()}}, register(b))
				b.EnqueueMany(tasks)
				b.AwaitSucceeded(tasks)
				b.WantOneEffectEach(tasks)
				b.Await(
					"the good hook and the answers",
					func() bool { return good.ended() == tasks && w.KindStatus().InFlight == 0 },
				)
				events := one[int32](b, "select count(*)::integer from taskledger.event "+
					"where type <> 'enqueued' and kind = $1", string(b.Kind().Name()))
				if n := bad.calls.Load(); n != events+tasks { // slow attempts record their start
					t.Errorf("%d calls for %d events", n, events)
				}
				if s := w.KindStatus(); s.Attempts[workers.OutcomeSucceeded] != tasks {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// The pool does not end before its hooks have returned.
func TestStopWaitsForHooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	reached, release := make(chan struct{}), make(chan struct{})
	slow := workers.Hook{AfterAttempt: func(ctx context.Context, _ *workers.Job, _ workers.AttemptEnd) {
		close(reached)
		select {
		case <-release:
		case <-ctx.Done():
		}
	}}
	good := &witness{}
	w := b.Work(workers.Config{Hooks: []workers.Hook{good.hook(), slow}, LeaseTTL: endless}, b.atLeast(b.outside, nil))
	k := b.Enqueue("o-1")
	<-reached
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Stop()
	}()
	select {
	case <-stopped:
		t.Error("the pool ended before its hooks")
	case <-time.After(300 * time.Millisecond): // many times the usual time
	}
	close(release)
	<-stopped
	good.ledgerAgrees(b, w, k)
}
