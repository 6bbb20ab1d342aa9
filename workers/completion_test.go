package workers_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/taskledger/taskledger/workers"
)

// Successes of an everyday rate share transactions, each of which costs PostgreSQL a flush of its log.
func TestCompletionsShareTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Relay()
	b.Work(workers.Config{}, atLeast(func(context.Context, *workers.Job, orderArgs) error { return nil }, nil))
	const tasks = 200
	for i := range tasks {
		b.Enqueue(strconv.Itoa(i))
		time.Sleep(2 * time.Millisecond)
	}
	b.AwaitSucceeded(tasks)
	if n := b.transactions(); n > tasks/2 {
		t.Errorf("%d successes took %d transactions", tasks, n)
	}
}
