package workers_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A handler reads the results of the task's predecessors in the order of After, and the error of a predecessor that
// has not succeeded. For a task without After it reads none.
func TestHandlerReadsPredecessors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	part, join := ledger.MustKind[int]("test.part"), ledger.MustKind[string]("test.join")
	results := make(chan []ledger.Task, 2)
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		err := p.Register(workers.Handle(part, func(_ context.Context, _ pgx.Tx, job *workers.Job, n int) error {
			if n == 0 {
				return workers.Permanent(context.Canceled)
			}
			return job.Result(10 * n)
		}, nil))
		if err != nil {
			return err
		}
		return p.Register(workers.Handle(join, func(ctx context.Context, _ pgx.Tx, job *workers.Job, _ string) error {
			parts, err := job.Predecessors(ctx)
			results <- parts
			return err
		}, nil))
	})
	b.Dispatch()
	b.Schedule()
	for id, n := range map[ledger.BizID]int{"a": 1, "b": 2, "broken": 0} {
		try(part.Enqueue(t.Context(), b.DB, id, n, nil))(t)
	}
	after := []ledger.Key{part.Key("b"), part.Key("broken"), part.Key("a"), part.Key("b")}
	o := &ledger.EnqueueOptions{After: after, Otherwise: ledger.OtherwiseRun}
	try(join.Enqueue(t.Context(), b.DB, "sum", "", o))(t)
	b.AwaitState(join.Key("sum"), ledger.StateSucceeded)
	parts := <-results
	if len(parts) != 3 || parts[0].BizID != "b" || parts[1].BizID != "broken" || parts[2].BizID != "a" {
		t.Fatalf("the predecessors are %v", parts)
	}
	for i, want := range map[int]int{0: 20, 2: 10} {
		if got, err := ledger.ResultOf[int](parts[i]); got != want || err != nil {
			t.Errorf("the result of %s is %d, %v; want %d", parts[i].Key, got, err, want)
		}
	}
	if _, err := ledger.ResultOf[int](parts[1]); parts[1].State != ledger.StateDead || err == nil {
		t.Errorf("the predecessor that failed is %s: %v", parts[1], err)
	}
	try(join.Enqueue(t.Context(), b.DB, "alone", "", nil))(t)
	if parts := <-results; parts != nil {
		t.Errorf("a task without After has the predecessors %v", parts)
	}
}
