//go:build unix

package workers_test

import (
	"testing"

	"github.com/taskledger/taskledger/workers"
)

// A worker that is killed between its permit and the handler, after the handler, or after the outcome holds its permits
// until they expire. Then its tasks run elsewhere, and each has one effect.
func TestPermitsOfAKilledWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	for _, point := range []string{"worker.claimed", "worker.handler", "worker.committed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			const limit, tasks = 3, 20
			b.limitConcurrency(limit)
			b.EnqueueMany(tasks)
			b.Spawn("exactly", point+":5").AwaitKilled(t)
			if n := b.permitsInUse(); n > limit {
				t.Errorf("%d permits are in use after the kill, want at most %d", n, limit)
			}
			b.expirePermits()
			b.Work(workers.Config{}, b.exactly(insertEffect, nil))
			b.AwaitSucceeded(tasks)
			b.WantOneEffectEach(tasks)
			if n := b.permitsInUse(); n != 0 {
				t.Errorf("%d permits are in use after the end", n)
			}
		})
	}
}
