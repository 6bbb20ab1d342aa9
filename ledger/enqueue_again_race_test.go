package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// If callers enqueue the next run at the same time, one of them begins it, and the others get that run.
func TestRerunRace(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	const runs, callers = 10, 4
	for run := range runs {
		var mu sync.Mutex
		var began []ledger.Version
		atOnce(t, callers, func(ctx context.Context) error {
			answer, err := ledger.Enqueue(ctx, pool, resync, json.RawMessage(`1`), o)
			mu.Lock()
			defer mu.Unlock()
			if answer.New {
				began = append(began, answer.Version)
			}
			return err
		})
		if len(began) != 1 || began[0] != ledger.Version(2*run+1) {
			t.Fatalf("run %d began with versions %v", run+1, began)
		}
		ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	}
	if task := loaded(t, pool, resync); task.Run != runs {
		t.Errorf("%d runs", task.Run)
	}
	ledgertest.Check(t, pool)
}

// A worker that finishes a task and a caller that replaces its args at the same time: if the replacement is first, the
// worker is fenced off; if the worker is first, the replacement is the next run.
func TestReplaceRacesTheWorker(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	replaced, followed := 0, 0
	for i := range 40 {
		k := ledger.Key{Kind: resync.Kind, BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, pool, k, `1`)
		var answer ledger.Enqueued
		var refused error
		calls := make(chan func(context.Context) error, 2)
		calls <- func(ctx context.Context) (err error) {
			o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
			answer, err = ledger.Enqueue(ctx, pool, k, json.RawMessage(`2`), o)
			return err
		}
		calls <- func(ctx context.Context) error {
			_, refused = ledger.Append(ctx, pool, ledgertest.Request(k, 1, ledger.EventSucceeded))
			if ledger.IsConflict(refused) {
				return nil
			}
			return refused
		}
		atOnce(t, 2, func(ctx context.Context) error { return (<-calls)(ctx) })
		task := loaded(t, pool, k)
		switch {
		case !answer.New || string(task.Args) != `2` || task.State != ledger.StateAvailable:
			t.Fatalf("%+v: %+v", answer, task)
		case refused != nil && task.Run == 1:
			replaced++
		case refused == nil && task.Run == 2:
			followed++
		default:
			t.Fatalf("run %d, and the worker got %v", task.Run, refused)
		}
	}
	t.Logf("%d replaced, %d followed", replaced, followed)
	ledgertest.Check(t, pool)
}

// atOnce calls f n times at once, and fails the test for an error.
func atOnce(t *testing.T, n int, f func(context.Context) error) {
	t.Helper()
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() { errs[i] = f(t.Context()) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A transaction whose snapshot is older than the end of the run gets ErrRetryTransaction, and not the answer that the
// run is unfinished.
func TestRerunWithAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, isolation := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, how := range []ledger.IfExists{ledger.IfExistsRerun, ledger.IfExistsReplace} {
			k := ledger.Key{Kind: resync.Kind, BizID: ledger.BizID(string(isolation) + string(how))}
			ledgertest.Enqueue(t, pool, k, "1")
			ledgertest.Append(t, pool, k, ledger.EventStarted)
			begin := func() pgx.Tx {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				ledgertest.BackendPID(t, tx) // takes the snapshot
				return tx
			}
			o := ledger.EnqueueOptions{IfExists: how}
			current := begin()
			answer, err := enqueueAs(t, current, k, "1", o)
			if err != nil || answer.New || answer.State != ledger.StateRunning {
				t.Errorf("%s: the run is unfinished: %+v, %v", how, answer, err)
			}
			if err := current.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			old := begin()
			ledgertest.Append(t, pool, k, ledger.EventSucceeded)
			if _, err := enqueueAs(t, old, k, "1", o); !errors.Is(err, ledger.ErrRetryTransaction) {
				t.Errorf("%s: the run has finished: %v", how, err)
			}
		}
	}
	ledgertest.Check(t, pool)
}
