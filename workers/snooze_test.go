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
	b.Dispatch()
	b.Work(workers.Config{}, b.exactly(func(context.Context, pgx.Tx, *workers.Job, orderArgs) error {
		return workers.SnoozeFor(-time.Second)
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
	k := b.Enqueue("o-1")
	b.Await("the task to be dead", func() bool { return b.Task(k).State == ledger.StateDead })
	if reason := b.Task(k).Error; !strings.Contains(reason, "SnoozeFor must not be negative, got -1s") {
		t.Errorf("error %q", reason)
	}
}

// A task that is snoozed until a time that is not in the future is available at once. The second time in a row it waits
// by the policy, and uses no attempt. A longer snooze ends the row.
func TestSnoozesUntilThePastWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Schedule()
	past := time.Unix(1, 0)
	b.Work(workers.Config{}, b.exactly(func(_ context.Context, _ pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.BizID == "until" {
			return workers.SnoozeUntil(past)
		}
		if job.BizID == "then" && job.Attempt > 1 {
			return workers.SnoozeFor(time.Hour)
		}
		return workers.SnoozeFor(0)
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1, Ladder: []time.Duration{2 * time.Hour}, Jitter: -1}}))
	for id, want := range map[ledger.BizID]struct {
		wait time.Duration
		data string
	}{
		"until": {wait: 2 * time.Hour, data: `"short_in_a_row":2`},
		"for":   {wait: 2 * time.Hour, data: `"short_in_a_row":2`},
		"then":  {wait: time.Hour},
	} {
		k := b.Enqueue(string(id))
		b.Await("the wait of "+string(id), func() bool {
			return b.Task(k).DueAt.After(time.Now().Add(time.Minute))
		})
		task, last := b.Task(k), b.History(k)
		e := last[len(last)-1]
		if wait := task.DueAt.Sub(task.UpdatedAt); task.State != ledger.StateScheduled || task.Attempt != 2 ||
			task.Failures != 0 || wait.Round(time.Minute) != want.wait {
			t.Errorf("%v, %d failures, waits %s, want %s", task, task.Failures, wait, want.wait)
		}
		if want.data == "" == strings.Contains(string(e.Data), "short_in_a_row") ||
			!strings.Contains(string(e.Data), want.data) {
			t.Errorf("%s: %s", id, e.Data)
		}
	}
}

// The snoozes of an earlier run are not in a row with those of this run, although attempts are counted from 1 again.
func TestSnoozesOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Schedule()
	b.Work(workers.Config{}, b.exactly(func(_ context.Context, _ pgx.Tx, job *workers.Job, args orderArgs) error {
		switch {
		case args.Amount == int(job.Attempt): // the first attempt of the first run, the second of the second
			return workers.SnoozeFor(0)
		case args.Amount > int(job.Attempt):
			return errBoom
		}
		return nil
	}, nil))
	k := b.Kind().Key("resync")
	for run := 1; run <= 2; run++ {
		again := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
		if _, err := b.Kind().Enqueue(t.Context(), b.DB, k.BizID, orderArgs{Amount: run}, again); err != nil {
			t.Fatal(err)
		}
		b.AwaitState(k, ledger.StateSucceeded)
	}
	snoozes := 0
	for _, e := range b.History(k) {
		if e.Type == ledger.EventSnoozed {
			if snoozes++; !strings.Contains(string(e.Data), `"short_in_a_row":1`) {
				t.Errorf("snooze %d: %s", snoozes, e.Data)
			}
		}
	}
	if snoozes != 2 {
		t.Errorf("%d snoozes, want 2", snoozes)
	}
}
