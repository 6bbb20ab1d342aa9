package workers_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A run of a task that has finished gets its own args, attempts and failures, for each guarantee. It is dispatched and
// retried like a new task.
func TestRunsOfATask(t *testing.T) {
	t.Parallel()
	type call struct {
		Number  int
		Attempt ledger.Attempt
	}
	for name, register := range map[string]func(*bundle, func(*workers.Job, orderArgs) error) func(*workers.Pool) error{
		"exactly once": func(b *bundle, h func(*workers.Job, orderArgs) error) func(*workers.Pool) error {
			return b.exactly(func(_ context.Context, _ pgx.Tx, job *workers.Job, args orderArgs) error {
				return h(job, args)
			}, nil)
		},
		"at least once": func(b *bundle, h func(*workers.Job, orderArgs) error) func(*workers.Pool) error {
			return b.atLeast(func(_ context.Context, job *workers.Job, args orderArgs) error {
				return h(job, args)
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			b.Schedule()
			var mu sync.Mutex
			var calls []call
			b.Work(workers.Config{}, register(b, func(job *workers.Job, args orderArgs) error {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, call{args.Amount, job.Attempt})
				if job.Attempt == 1 && args.Amount%2 == 1 {
					return errBoom
				}
				return nil
			}))
			k := b.Kind().Key("resync")
			var want []call
			for run := 1; run <= 4; run++ {
				answer, err := b.Kind().Enqueue(t.Context(), b.DB, k.BizID, orderArgs{Amount: run},
					&ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun})
				if err != nil || !answer.New {
					t.Fatalf("run %d: %+v, %v", run, answer, err)
				}
				b.AwaitState(k, ledger.StateSucceeded)
				want = append(want, call{run, 1})
				if run%2 == 1 {
					want = append(want, call{run, 2})
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := difference.Of(want, slices.Compact(calls)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			task, err := ledger.Load(t.Context(), b.DB, k)
			if err != nil || task.Run != 4 || task.Failures != 0 || task.Attempt != 1 {
				t.Errorf("%+v, %v", task, err)
			}
		})
	}
}

// A task whose args are replaced while it waits for a slot of its worker, or that ends and runs again meanwhile, runs
// with the new args, whichever guarantee its kind has.
func TestReplacedWhileItWaitsForASlot(t *testing.T) {
	t.Parallel()
	type handler = func(*workers.Job, orderArgs) error
	for name, register := range map[string]func(*bundle, handler) func(*workers.Pool) error{
		"exactly once": func(b *bundle, h handler) func(*workers.Pool) error {
			return b.exactly(func(_ context.Context, _ pgx.Tx, job *workers.Job, args orderArgs) error {
				return h(job, args)
			}, nil)
		},
		"at least once": func(b *bundle, h handler) func(*workers.Pool) error {
			return b.atLeast(func(_ context.Context, job *workers.Job, args orderArgs) error {
				return h(job, args)
			}, nil)
		},
		"at most once": func(b *bundle, h handler) func(*workers.Pool) error {
			return b.atMost(func(_ context.Context, job *workers.Job, args orderArgs) error {
				return h(job, args)
			}, nil)
		},
	} {
		for _, again := range []ledger.IfExists{ledger.IfExistsReplace, ledger.IfExistsRerun} {
			t.Run(name+", "+string(again), func(t *testing.T) {
				t.Parallel()
				testReplacedWhileItWaits(t, again, register)
			})
		}
	}
}

func testReplacedWhileItWaits(
	t *testing.T, again ledger.IfExists,
	register func(*bundle, func(*workers.Job, orderArgs) error) func(*workers.Pool) error,
) {
	b := setup(t)
	b.Dispatch()
	began, release := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var calls []int
	c := workers.Config{Slots: 1, LeaseTTL: slowLease}
	w := b.Work(c, register(b, func(job *workers.Job, args orderArgs) error {
		if job.BizID == "first" {
			close(began)
			<-release
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, args.Amount)
		return nil
	}))
	b.Enqueue("first")
	<-began
	k := b.Kind().Key("second")
	enqueue := func(amount int) {
		t.Helper()
		answer, err := b.Kind().Enqueue(t.Context(), b.DB, k.BizID, orderArgs{Amount: amount},
			&ledger.EnqueueOptions{IfExists: again})
		if err != nil || !answer.New {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	enqueue(1)
	b.Await("the task to wait for the slot", func() bool { return w.KindStatus().InFlight == 2 })
	if again == ledger.IfExistsRerun {
		try(b.Operator().Cancel(b.Context(), k, audit))(t)
	}
	enqueue(2)
	close(release)
	b.AwaitState(k, ledger.StateSucceeded)
	mu.Lock()
	defer mu.Unlock()
	if len(calls) == 0 || calls[len(calls)-1] != 2 {
		t.Errorf("the task succeeded after calls with %v, want the last one with 2", calls)
	}
}
