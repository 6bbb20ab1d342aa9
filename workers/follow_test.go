package workers_test

import (
	"context"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// While a handler runs, any number of enqueues with follow lead to one more run, with the args of the last of them.
func TestChangesWhileAHandlerRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Schedule()
	var mu sync.Mutex
	var calls []int
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	b.Work(workers.Config{}, b.atMost(func(_ context.Context, _ *workers.Job, args orderArgs) error {
		mu.Lock()
		calls = append(calls, args.Amount)
		mu.Unlock()
		begun <- struct{}{}
		<-goOn
		return nil
	}, nil))
	k := b.Kind().Key("resync")
	o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsFollow}
	enqueue := func(amount int) ledger.Enqueued {
		return try(b.Kind().Enqueue(t.Context(), b.DB, k.BizID, orderArgs{Amount: amount}, o))(t)
	}
	enqueue(1)
	<-begun
	for amount := 2; amount <= 4; amount++ {
		if e := enqueue(amount); !e.New || e.State != ledger.StateRunning {
			t.Errorf("%+v", e)
		}
	}
	goOn <- struct{}{}
	<-begun
	goOn <- struct{}{}
	b.AwaitState(k, ledger.StateSucceeded)
	mu.Lock()
	defer mu.Unlock()
	if diff := difference.Of([]int{1, 4}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if task := b.Task(k); task.Run != 2 {
		t.Errorf("%+v", task)
	}
}
