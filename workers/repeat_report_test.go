package workers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A task whose attempts are repeated without an event is in the lease of its worker while that lasts.
func TestRepeatsAreReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var isWell atomic.Bool
	b.Work(workers.Config{}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error {
		if isWell.Load() {
			return nil
		}
		return errPartner
	}, nil))
	k := b.Enqueue("o-1")
	read := func() []operator.RepeatedTask { return try(operator.ReadRepeated(b.Context(), b.DB))(t) }
	b.Await("a report", func() bool { return len(read()) == 1 })
	if got := read()[0]; got.Key != k || got.Times < 3 || got.Error != errPartner.Error() ||
		time.Since(got.Since) > time.Minute {
		t.Errorf("reported %+v", got)
	}
	isWell.Store(true)
	b.AwaitState(k, ledger.StateSucceeded)
	b.Await("the end of the report", func() bool { return len(read()) == 0 })
}
