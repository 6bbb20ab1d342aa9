package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// The event that records the start of an attempt, some time after it, has when the attempt began: the same time as the
// outcome has.
func TestStartIsRecordedWithItsTime(t *testing.T) {
	t.Parallel()
	const startedAfter = 1200 * time.Millisecond
	for _, first := range []ledger.EventType{ledger.EventStarted, ledger.EventProgressed} {
		t.Run(string(first), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
			handle := func(_ context.Context, job *workers.Job, _ orderArgs) error {
				if first == ledger.EventProgressed {
					time.Sleep(startedAfter / 4) // some work
					return job.Checkpoint(1)
				}
				b.AwaitState(k, ledger.StateRunning)
				return nil
			}
			b.Work(workers.Config{LeaseTTL: 4 * startedAfter},
				b.atLeast(handle, workers.SetStartedAfter(startedAfter, workers.KindConfig{})))
			b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateSucceeded)
			history := b.History(k)
			begin, end := history[1], history[len(history)-1]
			at, isKnown := begin.BeganAt()
			want, _ := end.BeganAt()
			if begin.Type != first || !isKnown || at.Sub(want).Abs() > begin.RecordedAt.Sub(want)/2 {
				t.Errorf("%s recorded at %s: began at %s, by the outcome at %s", begin.Type, begin.RecordedAt, at, want)
			}
		})
	}
}
