package workers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// The task of a handler that harms its own attempt is still done once.
func TestHandlerThatHarmsItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	for name, test := range map[string]struct {
		harm   func(context.Context, pgx.Tx, *workers.Job) error
		failed int // number of failed attempts
	}{
		"enqueues its own task": {harm: func(ctx context.Context, tx pgx.Tx, job *workers.Job) error {
			e, err := ledger.MustKind[orderArgs](job.Kind).Enqueue(ctx, tx, job.BizID, orderArgs{Amount: 7}, nil)
			if err == nil && (e.New || !e.SameArgs) {
				err = fmt.Errorf("answered %+v", e)
			}
			return err
		}, failed: 0},
		"leaves too large a result": {harm: func(_ context.Context, _ pgx.Tx, job *workers.Job) error {
			err := job.Result(strings.Repeat("x", workers.MaxResultBytes))
			var invalid *ledger.InvalidError
			if !errors.As(err, &invalid) {
				return fmt.Errorf("no *InvalidError: %w", err)
			}
			return err
		}, failed: 1},
		// This cannot be distinguished from a lost connection.
		"closes its connection": {
			harm:   func(ctx context.Context, tx pgx.Tx, _ *workers.Job) error { return tx.Conn().Close(ctx) },
			failed: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			var calls atomic.Int32
			b.Work(
				workers.Config{},
				b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
					if err := insertEffect(ctx, tx, job, args); err != nil {
						return err
					}
					if calls.Add(1) == 1 {
						return test.harm(ctx, tx, job)
					}
					return nil
				}, nil),
			)
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateSucceeded)
			b.WantOneEffect(k)
			if failures := b.failures(k); len(failures) != test.failed {
				t.Errorf("failures: %q", failures)
			}
		})
	}
}

// A panic in a goroutine that the handler started ends the process, as always in Go: another worker does the task,
// once.
func TestHandlerWhoseGoroutinePanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	k := b.Enqueue("o-1")
	c := b.Spawn("panics")
	<-c.Ended
	if c.ProcessState.Success() {
		t.Fatal("the process ended well")
	}
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}
