package workers_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// A task fails, is snoozed and fails again. The scheduler releases it each time when it is due and not before, and
// the last failure that its ladder allows buries it.
func TestRetriesComeBackWhenDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Schedule()
	var calls atomic.Int32
	b.Work(workers.Config{}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error {
		switch calls.Add(1) {
		case 2:
			return workers.SnoozeFor(200 * time.Millisecond)
		case 3:
			return workers.RetryIn(300*time.Millisecond, errBoom)
		}
		return errBoom
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{
		Ladder: []time.Duration{100 * time.Millisecond, time.Hour}, Jitter: -1,
	}}))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateDead)
	want := []ledger.EventType{
		ledger.EventEnqueued, ledger.EventFailed, ledger.EventReleased, ledger.EventSnoozed, ledger.EventReleased,
		ledger.EventFailed, ledger.EventReleased, ledger.EventFailed, ledger.EventBuried,
	}
	// On a busy machine the dispatcher may have changed: then starts are recorded.
	history := slices.DeleteFunc(b.History(k), func(e ledger.Event) bool { return e.Type == ledger.EventStarted })
	var types []ledger.EventType
	for _, e := range history {
		types = append(types, e.Type)
	}
	if diff := difference.Of(want, types); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	for i, reason := range map[int]string{2: "retry", 4: "due", 6: "retry"} {
		due := history[i-1].DueAt()
		if due.IsZero() || history[i].RecordedAt.Before(due) || b.data(history[i]).Reason != reason {
			t.Errorf("due at %s, released at %s: %s", due, history[i].RecordedAt, history[i].Data)
		}
	}
}

// A timer does not undo an operator's change of a waiting task.
func TestTimersOfOperatedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.Operator()
	snooze := func(id string) ledger.Key {
		k := b.EnqueueIn(ledger.StateAvailable, id)
		try(
			ledger.Append(b.Context(), b.DB,
				ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventSnoozed, In: 50 * time.Millisecond}),
		)(t)
		return k
	}
	cancelled, buried, put, forward := snooze("cancelled"), snooze("buried"), snooze("put off"), b.EnqueueIn(
		ledger.StateScheduled, "forward",
	)
	try(o.Cancel(b.Context(), cancelled, audit))(t)
	try(o.Bury(b.Context(), buried, audit))(t)
	try(o.Reschedule(b.Context(), put, ledger.Due{In: time.Hour}, audit))(t)
	try(o.Reschedule(b.Context(), forward, ledger.Due{At: time.Now().Add(-time.Hour)}, audit))(t)
	b.Schedule()
	b.AwaitState(forward, ledger.StateAvailable)
	b.Await("the old timers to go", func() bool {
		return one[int](
			b, "select count(*)::integer from taskledger.timer where due_at < clock_timestamp() + interval '1 minute'",
		) == 0
	})
	for k, want := range map[ledger.Key]ledger.State{
		cancelled: ledger.StateCancelled, buried: ledger.StateDead, put: ledger.StateScheduled,
	} {
		if task := b.Task(k); task.State != want || task.Version != 3 {
			t.Errorf("%s is %s: %v", k, task.State, b.EventTypes(k))
		}
	}
}
