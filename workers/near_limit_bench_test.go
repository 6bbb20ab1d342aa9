package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// BenchmarkDrainNearLimit measures the cost of recording starts first. It compares a backlog just below half of the
// limit with one at half of the limit. Both take turns on the same servers, so that the ratio is meaningful on a busy
// machine.
func BenchmarkDrainNearLimit(b *testing.B) {
	b.Run("AtLeastOnce", func(b *testing.B) {
		world := setupOn(b, durablePool(b))
		drainNearLimit(b, world, 20_000, world.atLeast(
			func(context.Context, *workers.Job, orderArgs) error { return nil }, &workers.KindConfig{Slots: 500}))
	})
	b.Run("ExactlyOnce", func(b *testing.B) {
		world := setupOn(b, durablePool(b))
		drainNearLimit(b, world, 6_000, world.exactly(insertEffect, &workers.KindConfig{Slots: 16}))
	})
}

func drainNearLimit(b *testing.B, world *bundle, n int, register func(*workers.Pool) error) {
	world.Dispatch()
	const far, near = 0, 1
	var took [2]time.Duration
	round := 0
	for i := range b.N {
		for turn := range 2 {
			where := (i + turn) % 2 // the order changes too
			world.backlog(round, n, order)
			round++
			world.Project()
			world.SetLimit(int64(2*n+1-where), ledger.DiscardOldest)
			const starts = "select count(*)::integer from taskledger.event where type = 'started'"
			before := one[int](world, starts)
			w, t := world.workOff(n, workers.Config{}, register)
			w.Stop()
			took[where] += t
			if started := one[int](world, starts) - before; started != where*n {
				b.Fatalf("%d starts are recorded of %d tasks, near the limit: %t", started, n, where == near)
			}
		}
	}
	tasks := float64(b.N * n)
	b.ReportMetric(tasks/took[far].Seconds(), "far-tasks/s")
	b.ReportMetric(tasks/took[near].Seconds(), "near-tasks/s")
	b.ReportMetric(took[near].Seconds()/took[far].Seconds(), "near/far")
	b.ReportMetric(0, "ns/op")
}
