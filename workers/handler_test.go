package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// failedData is the data of a failed event.
type failedData struct {
	Error struct{ Message, Type, Stack string } `json:"error"`
}

// failures returns the data of a task's failed events.
func (b *bundle) failures(k ledger.Key) []failedData {
	b.T.Helper()
	var all []failedData
	for _, e := range b.History(k) {
		if e.Type == ledger.EventFailed {
			var d failedData
			if err := json.Unmarshal(e.Data, &d); err != nil {
				b.T.Fatal(err)
			}
			all = append(all, d)
		}
	}
	return all
}

// misbehaviour is a fault of a handler.
type misbehaviour struct {
	misbehave func(ctx context.Context, tx pgx.Tx) error
	message   string // of the failed event
	config    workers.KindConfig
}

var misbehaviours = map[string]misbehaviour{
	"error": {
		misbehave: func(context.Context, pgx.Tx) error { return errBoom },
		message:   "boom",
		config:    workers.KindConfig{},
	},
	"panic": {
		misbehave: func(context.Context, pgx.Tx) error { panic("at the disco") },
		message:   "panic: at the disco",
		config:    workers.KindConfig{},
	},
	"panics an error": {
		misbehave: func(context.Context, pgx.Tx) error { panic(errBoom) },
		message:   "panic: boom",
		config:    workers.KindConfig{},
	},
	"goexit": {
		misbehave: func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil },
		message:   "runtime.Goexit",
		config:    workers.KindConfig{},
	},
	"nul": {
		misbehave: func(context.Context, pgx.Tx) error { return errors.New("a\x00b\xff") },
		message:   "a\uFFFDb\uFFFD",
		config:    workers.KindConfig{},
	},
	"swallows": {
		misbehave: func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil },
		message:   "swallowed",
		config:    workers.KindConfig{},
	},
	"partner": {misbehave: func(ctx context.Context, _ pgx.Tx) error {
		_, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:1") // no process listens there
		return err
	}, message: "connection refused", config: workers.KindConfig{}},
	"truncated": {
		misbehave: func(context.Context, pgx.Tx) error { return io.ErrUnexpectedEOF },
		message:   "unexpected EOF",
		config:    workers.KindConfig{},
	},
	"open rows": {misbehave: func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Query(ctx, "select generate_series(1, 9999)")
		return err
	}, message: "rows", config: workers.KindConfig{}},
	"deferred": {misbehave: func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into strict values (1), (1)")
		return err
	}, message: "strict_pkey", config: workers.KindConfig{}},
	"heeds": {
		misbehave: func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return context.Cause(ctx) },
		message:   "timed out after 2s",
		config:    workers.KindConfig{Timeout: 2 * time.Second},
	},
	"sleeps": {
		misbehave: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select pg_sleep(60)")
			return err
		},
		message: "timed out after 2s",
		config:  workers.KindConfig{Timeout: 2 * time.Second},
	},
	"ignores": {
		misbehave: func(ctx context.Context, _ pgx.Tx) error { <-ctx.Value(neverKey{}).(chan struct{}); return nil },
		message:   "the handler did not return",
		config:    workers.KindConfig{Timeout: 2 * time.Second},
	},
	"nil error": {
		misbehave: func(context.Context, pgx.Tx) error { return (*nilError)(nil) },
		message:   "panic: ",
		config:    workers.KindConfig{},
	},
	"ends it": {
		misbehave: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		message:   workers.ErrNotYours.Error(),
		config:    workers.KindConfig{},
	},
	"bad result": {
		misbehave: func(ctx context.Context, tx pgx.Tx) error { return ctxJob(ctx).Result(make(chan int)) },
		message:   "result",
		config:    workers.KindConfig{},
	},
}

// schemaOfMisbehaviours creates the objects that they need in the database.
const schemaOfMisbehaviours = "create table strict (i integer, " +
	"constraint strict_pkey primary key (i) deferrable initially deferred)"

// A handler misbehaves at its first attempt and not at its second. The first leaves only a failed event, and the
// second is done once.
func TestHandlerThatMisbehavesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(schemaOfMisbehaviours)
	b.Dispatch()
	for name, test := range misbehaviours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			var calls atomic.Int32
			never := make(chan struct{}) // until the test ends
			t.Cleanup(func() { close(never) })
			w := b.Work(
				workers.Config{},
				b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
					if err := insertEffect(ctx, tx, job, args); err != nil {
						return err
					}
					if calls.Add(1) == 1 {
						ctx = context.WithValue(ctx, jobKey{}, job)
						return test.misbehave(context.WithValue(ctx, neverKey{}, never), tx)
					}
					return nil
				}, &test.config),
			)
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
			failures := b.failures(k)
			if len(failures) != 1 || !strings.Contains(failures[0].Error.Message, test.message) {
				t.Errorf("failures %q, want one with the message %q", failures, test.message)
			}
			if isPanic := strings.HasPrefix(test.message, "panic"); isPanic != strings.Contains(
				failures[0].Error.Stack, "handler_test.go",
			) {
				t.Errorf("stack: %q", failures[0].Error.Stack)
			}
			if task := b.Task(k); task.Failures != 1 || task.Attempt < 2 {
				t.Errorf("%d failures in %d attempts", task.Failures, task.Attempt)
			}
			if overdue := w.KindStatus().Overdue; (overdue == 1) != (name == "ignores") {
				t.Errorf("%d handlers are overdue", overdue)
			}
		})
	}
}

// nilError is an error that is not nil and holds a nil pointer.
type nilError struct{ message string }

func (e *nilError) Error() string { return e.message }

type jobKey struct{}
type neverKey struct{}

func ctxJob(ctx context.Context) *workers.Job { return ctx.Value(jobKey{}).(*workers.Job) }

// A handler that ends its transaction by COMMIT in SQL may have committed its writes. A retry could repeat them, so
// the task is buried.
func TestHandlerThatCommits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	for name, end := range map[string]string{
		"commit":           "commit",
		"commit and begin": "commit; begin",
		"rollback":         "rollback",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			b.Work(
				workers.Config{},
				b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
					if err := insertEffect(ctx, tx, job, args); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, end)
					return err
				}, nil),
			)
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateDead)
			if n := b.Effects(k); n > 1 {
				t.Errorf("%d effects", n)
			}
			if reason := b.Task(k).Error; !strings.Contains(reason, "ended by COMMIT or ROLLBACK") {
				t.Errorf("buried because of %q", reason)
			}
		})
	}
}

func TestSavepointsAreTheHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if err := insertEffect(ctx, tx, job, args); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			if err := insertEffect(ctx, inner, job, args); err != nil {
				return err
			}
			return errBoom
		})
		if !errors.Is(err, errBoom) {
			return err
		}
		return job.Result(map[string]int{"amount": args.Amount})
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	if diff := difference.Of(`{"amount":7}`, string(b.Task(k).Result)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// After as many failures as its policy allows a task is dead, and its event contains the error of each attempt.
func TestAttemptsUsedUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.atLeast(func(_ context.Context, job *workers.Job, _ orderArgs) error {
		return errors.New("boom " + string(rune('0'+job.Attempt)))
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 3}}))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateDead)
	want := []ledger.EventType{
		ledger.EventEnqueued, ledger.EventFailed, ledger.EventReleased, ledger.EventFailed, ledger.EventReleased,
		ledger.EventFailed, ledger.EventBuried,
	}
	if diff := difference.Of(want, b.EventTypes(k)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var data struct {
		Reason string
		Errors []struct {
			Attempt int
			Message string
		}
	}
	if err := json.Unmarshal(b.History(k)[6].Data, &data); err != nil {
		t.Fatal(err)
	}
	var messages []string
	for i, e := range data.Errors {
		if e.Attempt != i+1 {
			t.Errorf("error %d is of attempt %d", i, e.Attempt)
		}
		messages = append(messages, e.Message)
	}
	if diff := difference.Of([]string{"boom 1", "boom 2", "boom 3"}, messages); diff != "" ||
		data.Reason != "attempts used up" {
		t.Errorf("reason %q, errors (-want +got):\n%s", data.Reason, diff)
	}
}

// A task whose args do not decode fails by the policy. A worker of a version that decodes them finishes it.
func TestArgsThatDoNotDecode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Schedule()
	old := b.Work(workers.Config{}, b.exactly(insertEffect, &workers.KindConfig{
		Retry: ledger.RetryPolicy{Ladder: []time.Duration{10 * time.Millisecond}, Attempts: ledger.MaxRetryAttempts}}))
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	try(ledger.Enqueue(b.Context(), b.DB, k, json.RawMessage(`{"amount":"seven"}`), nil))(t)
	b.Await("a second attempt", func() bool { return b.Task(k).Failures >= 2 })
	if failure := b.Task(k).Error; !strings.Contains(failure, "args of test.order") {
		t.Errorf("failed because of %q", failure)
	}
	old.Stop()
	if n := b.Effects(k); n != 0 {
		t.Errorf("%d effects", n)
	}
	raw := ledger.MustKind[json.RawMessage](order.Name())
	handle := func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ json.RawMessage) error {
		return insertEffect(ctx, tx, job, orderArgs{})
	}
	b.Work(workers.Config{}, func(p *workers.Pool) error { return p.Register(workers.Handle(raw, handle, nil)) })
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// endProcess ends the server process of a transaction that uses the pool's login.
func endProcess(ctx context.Context, db *pgxpool.Pool, tx pgx.Tx) error {
	_, err := db.Exec(ctx, "select pg_terminate_backend($1::integer)", tx.Conn().PgConn().PID())
	return err
}

// Errors that request a retry of the transaction use no attempt.
func TestRetryableErrorsUseNoAttempt(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context, *bundle, pgx.Tx) error{
		"serialization failure": func(ctx context.Context, _ *bundle, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'no' using errcode = '40001'; end $$")
			return err
		},
		"connection lost": func(ctx context.Context, b *bundle, tx pgx.Tx) error {
			err := endProcess(ctx, b.As(ledgertest.App), tx)
			if err != nil {
				return err
			}
			for err == nil {
				_, err = tx.Exec(ctx, "select 1")
			}
			return errors.New("it hides what happened")
		},
		"connection lost unnoticed": func(ctx context.Context, b *bundle, tx pgx.Tx) error {
			return endProcess(ctx, b.As(ledgertest.App), tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			var calls atomic.Int32
			w := b.Work(
				workers.Config{},
				b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
					if err := insertEffect(ctx, tx, job, args); err != nil {
						return err
					}
					if calls.Add(1) <= 3 {
						return fail(ctx, b, tx)
					}
					return nil
				}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}, MaxLost: 1}),
			)
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
			// The first attempt left no event; the second one recorded its start, and continued.
			if task := b.Task(k); task.Failures != 0 || task.Attempt != 1 {
				t.Errorf("%d failures, %d attempts; events: %v", task.Failures, task.Attempt, b.EventTypes(k))
			}
			if n := w.KindStatus().Attempts[workers.OutcomeRetried]; n != 3 {
				t.Errorf("retried %d times, want 3", n)
			}
		})
	}
}
