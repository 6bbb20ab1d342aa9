package main

import (
	"context"
	"strconv"

	"github.com/taskledger/taskledger/ledger"
)

// partitionsMeasure measures the drain of tasks of many partitions, and of four priorities, next to the same number of
// plain ones.
func partitionsMeasure() measure {
	const tasks = 60_000
	drain := func(start drainStart) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			return drainOurs(ctx, t, t.size(tasks, tasks), noopAtLeastOnce, start, nil)
		}
	}
	return measure{
		name: "partitions", notQuick: true, alternating: true,
		title: "60,000 tasks, a handler that does nothing, 1,000 slots; plain, of 1,000 partitions, of four priorities",
		contenders: []contender{
			{system: ours, setting: "slots", tune: []string{"1000"}, run: drain(afterRelay)},
			{system: oursPartitions, setting: "slots", tune: []string{"1000"}, run: drain(withPartitions)},
			{system: oursPriorities, setting: "slots", tune: []string{"1000"}, run: drain(withPriorities)},
		},
	}
}

// fillPartitions enqueues n tasks of 1,000 partitions in turn.
func fillPartitions(ctx context.Context, t *trial, n int) error {
	const partitions = 1_000
	return fillWith(ctx, t, n, taskID, func(i int) *ledger.EnqueueOptions {
		return &ledger.EnqueueOptions{Partition: "tenant-" + strconv.Itoa(i%partitions)}
	})
}

// tenantMeasure measures from the return of a commit to the handler, for a tenant with few tasks, while the backlog of
// another tenant keeps all slots busy.
func tenantMeasure() measure {
	run := func(waiting int) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			return latencyBeside(ctx, t, t.size(waiting, waiting/20), ledger.EnqueueOptions{Partition: "large"},
				ledger.EnqueueOptions{Partition: "small"})
		}
	}
	return measure{
		name: "tenant", notQuick: true,
		title: "enqueue commit of a tenant's task to its handler, 20 a second; 100 slots, handlers of 50 ms; " +
			"without other tasks, and next to 1,000,000 of another tenant",
		contenders: []contender{
			{system: ours, run: run(0)},
			{system: oursNoisy, run: run(1_000_000)},
		},
	}
}
