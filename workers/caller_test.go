package workers_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

type orderHandler = func(context.Context, pgx.Tx, *workers.Job, orderArgs) error

// full is a bundle without NATS, in which one task of kind order waits, the limit; callers run the others.
func full(t *testing.T) *bundle {
	t.Helper()
	b := setupDatabase(t)
	b.CreateEffects()
	b.fill()
	return b
}

func (b *bundle) fill() {
	b.T.Helper()
	b.SetLimit(1, ledger.CallerRuns)
	b.Enqueue("waits")
	b.Project()
}

// caller returns a caller of the bundle's kind.
func (b *bundle) caller(h orderHandler, c *workers.KindConfig) *workers.Caller[orderArgs] {
	b.T.Helper()
	config := &workers.CallerConfig{Name: "shop"}
	return try(workers.NewCaller(b.Kind(), workers.Handle(b.Kind(), h, c), config))(b.T)
}

// buy is a business transaction that enqueues a task; commit is whether it commits.
func (b *bundle) buy(c *workers.Caller[orderArgs], id string, commit bool) (answer ledger.Enqueued, err error) {
	b.T.Helper()
	ctx := b.Context()
	tx := try(b.DB.Begin(ctx))(b.T)
	defer func() { _ = tx.Rollback(ctx) }()
	try(tx.Exec(ctx, "insert into effect values ('business', 0, $1)", id))(b.T)
	if answer, err = c.Enqueue(ctx, tx, ledger.BizID(id), orderArgs{Amount: 7}, nil); err != nil || !commit {
		return answer, err
	}
	try(tx.Exec(ctx, "insert into effect values ('business', 1, $1)", id))(b.T) // the transaction is still usable
	return answer, tx.Commit(ctx)
}

// Where too many tasks wait, the handler runs in the transaction that enqueues the task: everything commits together,
// or nothing does. No worker gets the task.
func TestCallerRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.Dispatch()
	hook := &witness{}
	c := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if errors := try(job.PreviousErrors(ctx))(t); len(errors) > 0 || job.Attempt != 1 || args.Amount != 7 {
			t.Errorf("attempt %d, args %+v, previous errors %v", job.Attempt, args, errors)
		}
		if err := errors.Join(job.Result("done"), job.Progress(1)); err != nil {
			return err
		}
		if _, err := ledger.Enqueue(ctx, tx, ledger.Key{Kind: "test.next", BizID: job.BizID}, nil, nil); err != nil {
			return err
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Hooks: []workers.Hook{hook.hook()}})
	for id, commit := range map[string]bool{"rolled-back": false, "o-1": true} {
		answer, err := b.buy(c, id, commit)
		want := ledger.Enqueued{
			Key:      ledger.Key{Kind: order.Name(), BizID: ledger.BizID(id)},
			New:      true,
			State:    ledger.StateSucceeded,
			Version:  2,
			SameArgs: true,
			Position: answer.Position,
		}
		if diff := difference.Of(want, answer); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", id, err, diff)
		}
	}
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	b.WantOneEffect(k)
	_, err := ledger.Load(b.Context(), b.DB, ledger.Key{Kind: order.Name(), BizID: "rolled-back"})
	if !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("a task of a transaction that rolled back: %v", err)
	}
	task, history := b.Task(k), b.History(k)
	if string(task.Result) != `"done"` || task.Attempt != 1 || task.Actor[:5] != "shop-" {
		t.Errorf("%+v", task)
	}
	next := try(ledger.ParseMeta(b.History(ledger.Key{Kind: "test.next", BizID: "o-1"})[0].Meta))(t)
	if next.Causation != history[0].ID() {
		t.Errorf("the follow-up names %q as its cause, want %q", next.Causation, history[0].ID())
	}
	if again, err := b.buy(c, "o-1", true); err != nil || again.New || again.State != ledger.StateSucceeded {
		t.Errorf("again: %+v, %v", again, err)
	}
	if hook.before != 2 || len(hook.ends) != 2 || hook.ends[0].Outcome != workers.OutcomeSucceeded ||
		len(hook.events) != 0 {
		t.Errorf("calls of the hook: %+v", hook)
	}
	if s := c.Status(); s.Attempts[workers.OutcomeSucceeded] != 2 || s.InFlight != 0 || s.Running != 0 {
		t.Errorf("%+v", s)
	}

	w := b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitState(ledger.Key{Kind: order.Name(), BizID: "waits"}, ledger.StateSucceeded)
	b.WantOneEffect(k)
	b.Await("the worker to be idle", func() bool { return w.KindStatus().InFlight == 0 })
	if n := w.KindStatus().Attempts[workers.OutcomeSucceeded]; n != 1 {
		t.Errorf("the worker ran %d tasks, want 1", n)
	}
	b.Project()
	if answer := try(b.buy(c, "room", true))(t); answer.State != ledger.StateAvailable {
		t.Errorf("with room for it: %+v", answer)
	}
	ledgertest.Check(t, b.DB)
}

// If a handler fails in a transaction of its caller, its writes are rolled back, and its task continues as after any
// failure. The caller's transaction continues, too.
func TestCallerRunsAndFails(t *testing.T) {
	t.Parallel()
	const enqueued, failed, buried = ledger.EventEnqueued, ledger.EventFailed, ledger.EventBuried
	retry := []ledger.EventType{enqueued, failed}
	b := full(t)
	for name, test := range map[string]struct {
		end     func(ctx context.Context, tx pgx.Tx) error
		config  workers.KindConfig
		events  []ledger.EventType
		state   ledger.State
		message string
	}{
		"error": {
			end: func(context.Context, pgx.Tx) error { return errBoom }, events: retry, state: ledger.StateRetrying,
			message: "boom",
		},
		"panic": {
			end: func(context.Context, pgx.Tx) error { panic("bang") }, events: retry, state: ledger.StateRetrying,
			message: "panic: bang",
		},
		"goexit": {
			end: func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, events: retry,
			state: ledger.StateRetrying, message: "handler called runtime.Goexit",
		},
		"at once": {
			end:    func(context.Context, pgx.Tx) error { return workers.RetryIn(0, errBoom) },
			events: append(retry, ledger.EventReleased), state: ledger.StateAvailable, message: "boom",
		},
		"permanent": {
			end:    func(context.Context, pgx.Tx) error { return workers.Permanent(errBoom) },
			events: append(retry, buried), state: ledger.StateDead, message: "boom",
		},
		"last": {
			end:    func(context.Context, pgx.Tx) error { return errBoom },
			config: workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}},
			events: append(retry, buried), state: ledger.StateDead, message: "boom"},
		"snoozed": {
			end:    func(context.Context, pgx.Tx) error { return workers.SnoozeFor(time.Hour) },
			events: []ledger.EventType{enqueued, ledger.EventSnoozed}, state: ledger.StateScheduled,
		},
		"discarded": {
			end:    func(context.Context, pgx.Tx) error { return workers.Discard("no") },
			events: []ledger.EventType{enqueued, ledger.EventStarted, ledger.EventDiscarded},
			state:  ledger.StateDiscarded,
		},
		"timeout": {
			end:    func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return ctx.Err() },
			config: workers.KindConfig{Timeout: 20 * time.Millisecond},
			events: retry, state: ledger.StateRetrying, message: "timed out after 20ms: context deadline exceeded",
		},
		"SQL error": {
			end: func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "select 1/0")
				return err
			},
			events: retry, state: ledger.StateRetrying, message: "ERROR: division by zero (SQLSTATE 22012)",
		},
		"swallowed SQL error": {
			end: func(ctx context.Context, tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, "select 1/0")
				return nil
			},
			events: retry, state: ledger.StateRetrying, message: ledger.ErrTransactionAborted.Error(),
		},
		"commit": {
			end: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, events: retry,
			state: ledger.StateRetrying, message: workers.ErrNotYours.Error(),
		},
		"rollback": {
			end: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, events: retry,
			state: ledger.StateRetrying, message: workers.ErrNotYours.Error(),
		},
		"savepoints left open": {end: func(ctx context.Context, tx pgx.Tx) error {
			inner := try(tx.Begin(ctx))(t)
			_, err := inner.Exec(ctx, "select 1/0")
			return err
		}, events: retry, state: ledger.StateRetrying, message: "ERROR: division by zero (SQLSTATE 22012)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				if err := insertEffect(ctx, tx, job, args); err != nil {
					return err
				}
				return test.end(ctx, tx)
			}, &test.config)
			answer, err := b.buy(c, name, true)
			if err != nil || !answer.New || answer.State != test.state || int(answer.Version) != len(test.events) {
				t.Errorf("%+v, %v", answer, err)
			}
			k := ledger.Key{Kind: order.Name(), BizID: ledger.BizID(name)}
			if diff := difference.Of(test.events, b.EventTypes(k)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if task := b.Task(k); task.Error != test.message {
				t.Errorf("error %q, want %q", task.Error, test.message)
			}
			if n := b.Effects(k); n != 0 {
				t.Errorf("%d effects", n)
			}
			if n := one[int](
				b, "select count(*)::integer from effect where biz_id = 'business' and note = $1", name,
			); n != 2 {
				t.Errorf("%d effects of the business", n)
			}
		})
	}
	ledgertest.Check(t, b.DB)
}

// A task whose deadline has passed is not run.
func TestCallerRunsTooLate(t *testing.T) {
	t.Parallel()
	b := full(t)
	c := b.caller(insertEffect, nil)
	tx := try(b.DB.Begin(b.Context()))(t)
	answer, err := c.Enqueue(
		b.Context(), tx, "late", orderArgs{}, &ledger.EnqueueOptions{FinishBy: time.Now().Add(-time.Minute)},
	)
	if err := errors.Join(err, tx.Commit(b.Context())); err != nil {
		t.Fatal(err)
	}
	k := ledger.Key{Kind: order.Name(), BizID: "late"}
	if n := b.Effects(k); answer.State != ledger.StateExpired || b.Task(k).State != ledger.StateExpired || n != 0 {
		t.Errorf("%+v, %+v, %d effects", answer, b.Task(k), n)
	}
}

// A task that failed in its caller is done by a worker later, once.
func TestCallerRunsAndWorkersRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.Dispatch()
	b.Schedule()
	c := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffect(ctx, tx, job, args); err != nil {
			return err
		}
		return workers.RetryIn(10*time.Millisecond, errBoom)
	}, nil)
	try(b.buy(c, "o-1", true))(t)
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	if task := b.Task(k); task.Attempt != 2 || task.Failures != 1 {
		t.Errorf("%+v", task)
	}
}

// A handler that ends its caller's transaction, or makes it unusable, is detected. The caller gets an error and
// commits nothing more, and a task that may be committed is not run again.
func TestCallerRunsAndEndsTheTransaction(t *testing.T) {
	t.Parallel()
	dead, none := ledger.StateDead, ledger.StateNone
	b := full(t)
	for name, test := range map[string]struct {
		do    func(ctx context.Context, tx pgx.Tx)
		want  error
		state ledger.State
	}{
		"commit": {
			do:   func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "commit") },
			want: ledger.ErrTransactionEnded, state: dead,
		},
		"commit and begin": {
			do:   func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "commit; begin") },
			want: ledger.ErrTransactionEnded, state: dead,
		},
		"rollback": {
			do:   func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "rollback") },
			want: ledger.ErrTransactionEnded, state: none,
		},
		"rollback and begin": {
			do:   func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "rollback; begin") },
			want: ledger.ErrTransactionEnded, state: none,
		},
		"open rows": {
			//nolint:sqlclosecheck // the rows stay open on purpose
			do:   func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Query(ctx, "select generate_series(1, 100000)") },
			want: workers.ErrRowsOpen, state: none,
		},
		"closed": {
			do: func(ctx context.Context, tx pgx.Tx) { _ = tx.Conn().Close(ctx) }, want: workers.ErrConnectionLost,
			state: none,
		},
		"terminated": {do: func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		}, want: workers.ErrConnectionLost, state: none},
	} {
		for how, result := range map[string]error{"": nil, " and fails": errBoom} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				b.fill()
				c := b.caller(func(ctx context.Context, tx pgx.Tx, _ *workers.Job, _ orderArgs) error {
					test.do(ctx, tx)
					return result
				}, nil)
				if answer, err := b.buy(c, "o-1", true); !errors.Is(err, test.want) {
					t.Errorf("%+v, %v, want %v", answer, err, test.want)
				}
				task, err := ledger.Load(b.Context(), b.DB, ledger.Key{Kind: b.Kind().Name(), BizID: "o-1"})
				if err != nil && !errors.Is(err, ledger.ErrUnknownTask) || task.State != test.state {
					t.Errorf("%+v, %v", task, err)
				}
				ledgertest.Check(t, b.DB)
			})
		}
	}
}

// A transient error is not a failure: the caller must roll back, and may try again.
func TestCallerRunsAndRetries(t *testing.T) {
	t.Parallel()
	b := full(t)
	for _, code := range []string{"40001", "40P01"} {
		c := b.caller(func(ctx context.Context, tx pgx.Tx, _ *workers.Job, _ orderArgs) error {
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'again' using errcode = '"+code+"'; end $$")
			return err
		}, nil)
		if answer, err := b.buy(c, code, true); !ledger.Retryable(err) {
			t.Errorf("%s: %+v, %v", code, answer, err)
		}
		if n := c.Status().Attempts[workers.OutcomeRetried]; n != 1 {
			t.Errorf("%d retried", n)
		}
	}
	ctx, cancel := context.WithCancelCause(b.Context())
	c := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffect(ctx, tx, job, args); err != nil {
			return err
		}
		cancel(errBoom)
		<-ctx.Done()
		return ctx.Err()
	}, nil)
	tx := try(b.DB.Begin(b.Context()))(t)
	if _, err := c.Enqueue(ctx, tx, "cancelled", orderArgs{}, nil); !errors.Is(err, errBoom) {
		t.Errorf("cancelled: %v", err)
	}
	if err := tx.Commit(b.Context()); err != nil { // despite the error, nothing is partly done
		t.Fatal(err)
	}
	k := ledger.Key{Kind: order.Name(), BizID: "cancelled"}
	if task, n := b.Task(k), b.Effects(k); task.State != ledger.StateAvailable || n != 0 {
		t.Errorf("%+v, %d effects", task, n)
	}
}

// A handler that does not return costs its caller the connection, but does not block it.
func TestCallerRunsAndDoesNotReturn(t *testing.T) {
	t.Parallel()
	b := full(t)
	goOn := make(chan struct{})
	c := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		<-goOn
		return insertEffect(ctx, tx, job, args)
	}, workers.SetStartedAfter(time.Millisecond, workers.KindConfig{Timeout: time.Millisecond}))
	if answer, err := b.buy(c, "o-1", true); !errors.Is(err, workers.ErrTimeout) {
		t.Errorf("%+v, %v", answer, err)
	}
	if s := c.Status(); s.Overdue != 1 || s.Running != 1 {
		t.Errorf("%+v", s)
	}
	close(goOn)
	b.Await("the handler to return", func() bool { s := c.Status(); return s.Overdue == 0 && s.Running == 0 })
	if _, err := ledger.Load(b.Context(), b.DB, ledger.Key{Kind: order.Name(), BizID: "o-1"}); !errors.Is(
		err, ledger.ErrUnknownTask,
	) {
		t.Error(err)
	}
}

// Many callers at once, some with the same tasks: each task is done once.
func TestCallersRace(t *testing.T) {
	t.Parallel()
	b := full(t)
	c := b.caller(insertEffect, nil)
	var callers sync.WaitGroup
	for i := range 6 {
		callers.Go(func() {
			for n := range 20 {
				if _, err := b.buy(c, fmt.Sprint("o-", n), i%3 > 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	b.Exec("delete from effect where biz_id = 'business'")
	b.WantOneEffectEach(20)
	ledgertest.Check(t, b.DB)
}

func TestNewCallerRefuses(t *testing.T) {
	t.Parallel()
	other := ledger.MustKind[orderArgs]("test.other")
	outside := func(context.Context, *workers.Job, orderArgs) error { return nil }
	for name, r := range map[string]workers.Registration{
		"an invalid KindConfig": workers.Handle(order, insertEffect, &workers.KindConfig{MaxLost: -1}),
		"another kind":          workers.Handle(other, insertEffect, nil),
		"AtLeastOnce":           workers.Handle(order, outside, nil),
		"database/sql":          workers.Handle(order, insertEffectSQL, nil),
	} {
		if _, err := workers.NewCaller(order, r, nil); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Log(err)
		}
	}
}
