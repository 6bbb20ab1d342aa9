package workers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A negative SnoozeFor is a failure by the policy: the task would be tried again without an end.
func TestNegativeSnoozeIsAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Relay()
	b.Work(workers.Config{}, exactly(func(context.Context, pgx.Tx, *workers.Job, orderArgs) error {
		return workers.SnoozeFor(-time.Second)
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
	k := b.Enqueue("o-1")
	b.Await("the task to be dead", func() bool { return b.Task(k).State == ledger.StateDead })
	if reason := b.Task(k).Error; !strings.Contains(reason, "SnoozeFor must not be negative, got -1s") {
		t.Errorf("error %q", reason)
	}
}
