package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Middleware is called around the handler, the first one outermost, the worker's outside of the kind's, inside the
// hooks. It may change the args, the context and the error.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var mu sync.Mutex
	var calls []string
	call := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, name)
	}
	type valueKey struct{}
	outer := func(next workers.Handler) workers.Handler {
		return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) error {
			call("outer")
			err := next(context.WithValue(ctx, valueKey{}, "of the middleware"), tx, job, []byte(`{"amount":8}`))
			if errors.Is(err, errBoom) {
				return workers.Discard("the middleware discards it")
			}
			return err
		}
	}
	inner := func(next workers.Handler) workers.Handler {
		return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) error {
			call("inner")
			savepoint, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if err := next(ctx, savepoint, job, args); err != nil {
				return errors.Join(err, savepoint.Rollback(ctx))
			}
			return savepoint.Commit(ctx)
		}
	}
	handler := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		call(fmt.Sprintf("handler %d %s", args.Amount, ctx.Value(valueKey{})))
		if job.BizID == "fails" {
			return errBoom
		}
		return insertEffect(ctx, tx, job, args)
	}
	hook := workers.Hook{BeforeAttempt: func(ctx context.Context, _ pgx.Tx, _ *workers.Job) (context.Context, error) {
		call("hook")
		return ctx, nil
	}}
	ofWorker := func(next workers.Handler) workers.Handler {
		return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) error {
			call("worker")
			return next(ctx, tx, job, args)
		}
	}
	b.Work(workers.Config{Middleware: []workers.Middleware{nil, ofWorker}}, b.exactly(handler, &workers.KindConfig{
		Middleware: []workers.Middleware{outer, nil, inner}, Hooks: []workers.Hook{hook},
	}))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	mu.Lock()
	diff := difference.Of([]string{"hook", "worker", "outer", "inner", "handler 8 of the middleware"}, calls)
	mu.Unlock()
	if diff != "" {
		t.Error(diff)
	}
	b.AwaitState(b.Enqueue("fails"), ledger.StateDiscarded)
}

// The attempt of a handler of database/sql fails if a middleware passes on a transaction other than its own.
func TestMiddlewareOfSQLRequiresItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	replacing := func(next workers.Handler) workers.Handler {
		return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) error {
			if job.BizID == "same" {
				return next(ctx, tx, job, args)
			}
			return next(ctx, struct{ pgx.Tx }{tx}, job, args)
		}
	}
	b.Work(workers.Config{}, b.exactlySQL(insertEffectSQL, &workers.KindConfig{
		Middleware: []workers.Middleware{replacing}, Retry: ledger.RetryPolicy{Attempts: 1},
	}))
	b.AwaitState(b.Enqueue("same"), ledger.StateSucceeded)
	other := b.Enqueue("other")
	b.AwaitState(other, ledger.StateDead)
	if task := b.Task(other); !strings.Contains(task.Error, "requires tx itself") {
		t.Errorf("error %q", task.Error)
	}
}

// A handler that decodes its args fails a task whose args do not decode by the policy, with every guarantee.
func TestInvalidArgs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	raw := ledger.MustKind[[]byte](order.Name())
	decode := func(context.Context, *workers.Job, []byte) error {
		return fmt.Errorf("order: %w", workers.InvalidArgs(errBoom))
	}
	twice := &workers.KindConfig{
		Guarantee: workers.AtMostOnce,
		Retry:     ledger.RetryPolicy{Ladder: []time.Duration{0}, Attempts: 2},
	}
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(raw, decode, twice))
	})
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateDead)
	history := b.History(k)
	var data struct {
		Reason string `json:"reason"`
		Error  struct {
			Message string `json:"message"`
			Type    string `json:"type"`
		} `json:"error"`
	}
	if err := json.Unmarshal(history[len(history)-1].Data, &data); err != nil {
		t.Fatal(err)
	}
	if data.Reason != "attempts used up" || b.Task(k).Failures != 2 {
		t.Errorf("reason %q", data.Reason)
	}
	if data.Error.Message != "order: boom" || data.Error.Type != "*errors.errorString" {
		t.Errorf("error %+v", data.Error)
	}
}

func TestKindConfigValidate(t *testing.T) {
	t.Parallel()
	c := &workers.KindConfig{Guarantee: workers.AtLeastOnce, Slots: -1, Together: 2}
	err := c.Validate()
	for _, fault := range []string{"Slots", "Together"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("error %v, want one with %q", err, fault)
		}
	}
	var none *workers.KindConfig
	if err := none.Validate(); err != nil {
		t.Error(err)
	}
}
