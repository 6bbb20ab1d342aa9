package operator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A priority changes with the time, or alone: then a waiting task keeps its due time, and an available one becomes
// available again.
func TestReschedulePriority(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.Operator()
	b.Schedule()
	due := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	later := b.Later("later", ledger.EnqueueOptions{RunAt: due})
	available := b.Enqueue("available")
	third := b.Later("third", ledger.EnqueueOptions{Priority: ledger.PriorityLow})
	awaiting := b.Later("awaiting", ledger.EnqueueOptions{After: []ledger.Key{later}})

	e, err := o.Reschedule(b.Context(), later, ledger.Due{Priority: ledger.PriorityUrgent}, audit)
	if err != nil || e.Priority != ledger.PriorityUrgent || !e.DueAt().Equal(due) {
		t.Errorf("a waiting task: %+v, due at %s, %v", e, e.DueAt(), err)
	}
	e, err = o.Reschedule(b.Context(), later, ledger.Due{In: time.Minute}, audit)
	if err != nil || e.Priority != ledger.PriorityUrgent || e.DueAt().After(due) {
		t.Errorf("a time alone: %+v, %v", e, err)
	}
	if _, err := o.Reschedule(b.Context(), available, ledger.Due{Priority: ledger.PriorityHigh}, audit); err != nil {
		t.Error(err)
	}
	b.Await("the task to be available again", func() bool {
		task := b.Task(available)
		return task.State == ledger.StateAvailable && task.Version == 3 && task.Priority == ledger.PriorityHigh
	})
	for name, err := range map[string]error{
		"awaits others": second(o.Reschedule(b.Context(), awaiting, ledger.Due{Priority: 1}, audit)),
		"no priority":   second(o.Reschedule(b.Context(), third, ledger.Due{Priority: 5}, audit)),
		"waiting tasks": second(o.RescheduleAll(
			b.Context(), operator.Filter{State: ledger.StateScheduled}, ledger.Due{Priority: 1}, audit, nil)),
	} {
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}

	b.Project()
	f := operator.Filter{}
	r, err := o.RescheduleAll(b.Context(), f, ledger.Due{Priority: ledger.PriorityUrgent}, audit, nil)
	if err != nil || r.Done != 2 {
		t.Errorf("all available tasks: %+v, %v", r, err)
	}
	for _, k := range []ledger.Key{available, third} {
		b.Await("the tasks to be urgent", func() bool { return b.Task(k).Priority == ledger.PriorityUrgent })
	}
	if task := b.Task(awaiting); task.Priority != 0 || task.State != ledger.StateScheduled {
		t.Errorf("the task that awaits another: %+v", task)
	}
	ledgertest.Check(t, b.DB)
}

func second[T any](_ T, err error) error { return err }
