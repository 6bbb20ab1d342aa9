package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// stubborn is a handler that reports when it begins and why its context was cancelled, and returns when leave is
// closed.
func stubborn(
	began chan<- ledger.BizID, why chan<- error, leave <-chan struct{},
) func(context.Context, *workers.Job, orderArgs) error {
	return func(ctx context.Context, job *workers.Job, _ orderArgs) error {
		began <- job.BizID
		select {
		case <-ctx.Done():
			why <- context.Cause(ctx)
			<-leave
		case <-leave:
		}
		return nil
	}
}

// A task that is cancelled and released before its start is recorded, while its handler runs, holds one permit: the one
// of the new attempt. The old handler's context is cancelled.
func TestPermitOfAnOvertakenAttempt(t *testing.T) {
	t.Parallel()
	for name, overtake := range map[string]func(*bundle, ledger.Key) error{
		"released": func(b *bundle, k ledger.Key) error {
			if _, err := b.Operator().Cancel(b.Context(), k, audit); err != nil {
				return err
			}
			_, err := b.Operator().Release(b.Context(), k, audit)
			return err
		},
		"run again": func(b *bundle, k ledger.Key) error {
			if _, err := b.Operator().Cancel(b.Context(), k, audit); err != nil {
				return err
			}
			_, err := ledger.Enqueue(b.Context(), b.DB, k, []byte(`{}`), &ledger.EnqueueOptions{
				IfExists: ledger.IfExistsRerun})
			return err
		},
		"rescheduled": func(b *bundle, k ledger.Key) error {
			_, err := b.Operator().Reschedule(b.Context(), k, ledger.Due{Priority: 1}, audit)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			b.Schedule()
			const tasks, limit = 5, 2 * 5
			b.limitConcurrency(limit)
			began, why := make(chan ledger.BizID, limit), make(chan error, limit)
			leaveOld, leave := make(chan struct{}), make(chan struct{})
			endOld, end := sync.OnceFunc(func() { close(leaveOld) }), sync.OnceFunc(func() { close(leave) })
			defer end()
			defer endOld()
			old := b.Work(workers.Config{Name: "old", LeaseTTL: endless}, b.atLeast(stubborn(began, why, leaveOld),
				workers.SetStartedAfter(endless, workers.KindConfig{Slots: tasks})))
			b.EnqueueMany(tasks)
			for range tasks {
				receive(b, "an old handler to begin", began)
			}
			b.Work(workers.Config{Name: "new", LeaseTTL: endless}, b.atLeast(stubborn(began, why, leave),
				workers.SetStartedAfter(time.Millisecond, workers.KindConfig{Slots: limit})))
			for i := range tasks {
				k := ledger.Key{Kind: b.Kind().Name(), BizID: ledger.BizID(fmt.Sprintf("o-%04d", i))}
				if err := overtake(b, k); err != nil {
					t.Fatal(err)
				}
			}
			for range tasks {
				receive(b, "a new handler to begin", began)
				cause := receive(b, "the end of an old handler's context", why)
				if !errors.Is(cause, workers.ErrFenced) {
					t.Errorf("cause %v, want ErrFenced", cause)
				}
			}
			b.Await("the starts to be recorded", func() bool { return len(b.TasksIn(ledger.StateRunning)) == tasks })
			if n := b.permitsInUse(); n != tasks {
				t.Errorf("%d tasks at work hold %d permits", tasks, n)
			}
			b.EnqueueRound("further", limit-tasks)
			for range limit - tasks {
				receive(b, "a further handler to begin", began)
			}
			if n := b.permitsInUse(); n != limit {
				t.Errorf("%d tasks at work hold %d permits", limit, n)
			}
			endOld()
			b.Await("no old attempt to be in flight", func() bool { return old.KindStatus().InFlight == 0 })
			if n := old.KindStatus().Attempts[workers.OutcomeFenced]; n != tasks {
				t.Errorf("%d old attempts were fenced, want %d", n, tasks)
			}
			end()
			b.AwaitSucceeded(limit)
			if n := b.permitsInUse(); n != 0 {
				t.Errorf("%d permits are in use after the end", n)
			}
		})
	}
}
