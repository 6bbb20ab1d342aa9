package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river"

	"github.com/taskledger/taskledger/workers"
)

// drainMeasure measures a backlog with a handler that does nothing. -quick does not change its size: a
// table that is updated in place is faster while it is small.
func drainMeasure() measure {
	return measure{
		name: "drain", onceQuick: true,
		title: "130,000 tasks, a handler that does nothing, completion included; " +
			"for us relay, history and projections too",
		contenders: []contender{
			{system: ours, setting: "slots", tune: []string{"1000"},
				run: func(ctx context.Context, t *trial) error {
					return drainOurs(ctx, t, t.size(130_000, 130_000), noopAtLeastOnce, afterRelay, nil)
				}},
			{system: oursFromCommit, setting: "slots", tune: []string{"1000"},
				run: func(ctx context.Context, t *trial) error {
					return drainOurs(ctx, t, t.size(130_000, 130_000), noopAtLeastOnce, fromCommit, nil)
				}},
			{system: oursNoStream, setting: "slots", tune: []string{"1000"},
				run: func(ctx context.Context, t *trial) error {
					return drainOurs(ctx, t, t.size(130_000, 130_000), noopAtLeastOnce, withoutRelay, nil)
				}},
			{system: oursPriorities, setting: "slots", tune: []string{"1000"},
				run: func(ctx context.Context, t *trial) error {
					return drainOurs(ctx, t, t.size(130_000, 130_000), noopAtLeastOnce, withPriorities, nil)
				}},
			{system: floorPipeline, run: func(ctx context.Context, t *trial) error {
				return drainFloor(ctx, t, t.size(130_000, 130_000))
			}},
			{system: floorFromStream, run: func(ctx context.Context, t *trial) error {
				return drainFloorStream(ctx, t, t.size(130_000, 130_000), 0)
			}},
			{system: peerRiver, setting: "MaxWorkers (2ms, polls 20ms)", tune: []string{"2000", "1000", "200"},
				run: func(ctx context.Context, t *trial) error { return drainRiver(ctx, t, t.size(130_000, 130_000)) }},
			{system: peerSkipLocked,
				tune: []string{"8 workers, batches of 100", "16 workers, batches of 1", "4 workers, batches of 1000"},
				run: func(ctx context.Context, t *trial) error {
					return drainSkipLocked(ctx, t, t.size(130_000, 130_000))
				}},
		},
	}
}

// exactlyOnceMeasure measures a handler whose row is committed with the completion.
func exactlyOnceMeasure() measure {
	return measure{
		name: "exactly-once", title: "60,000 tasks, one insert by the handler in the completing transaction",
		contenders: []contender{
			{system: ours, setting: "slots", tune: []string{"32", "16", "48"},
				run: func(ctx context.Context, t *trial) error {
					return drainOurs(ctx, t, t.size(60_000, 20_000), insertExactlyOnce, afterRelay, nil)
				}},
			{system: oursExec, setting: "slots", tune: []string{"32"},
				run: func(ctx context.Context, t *trial) error {
					return drainOurs(ctx, t, t.size(60_000, 20_000), insertAndWait, afterRelay, nil)
				}},
			{system: oursTogether, setting: "slots, up to 16 tasks in a transaction",
				tune: []string{"4", "8", "16"},
				run: func(ctx context.Context, t *trial) error {
					together := func(slots int) func(*workers.Pool) error { return insertTogether(slots, 16) }
					return drainOurs(ctx, t, t.size(60_000, 20_000), together, afterRelay, nil)
				}},
			{system: peerRiver, setting: "MaxWorkers (2ms, polls 20ms), JobCompleteTx",
				tune: []string{"16", "8", "32", "64", "128"},
				run: func(ctx context.Context, t *trial) error {
					return drainRiverTx(ctx, t, t.size(60_000, 20_000))
				}},
			{system: peerSkipLocked, tune: []string{"16 workers", "8 workers", "32 workers"},
				run: func(ctx context.Context, t *trial) error {
					return drainSkipLockedTx(ctx, t, t.size(60_000, 20_000))
				}},
			{system: floorPipeline, setting: "transactions at once", tune: []string{"30", "15", "48"},
				run: func(ctx context.Context, t *trial) error {
					transactions, err := strconv.Atoi(t.tuning)
					if err != nil {
						return err
					}
					return drainFloorStream(ctx, t, t.size(60_000, 20_000), transactions)
				}},
		},
	}
}

// drainStart is the state of a backlog when the clock starts.
type drainStart int

const (
	afterRelay     drainStart = iota // published and projected
	fromCommit                       // committed; the clock stops when both events of each task are published
	withoutRelay                     // committed; no relay runs
	withPriorities                   // published and projected, tasks of four priorities in turn
	withPartitions                   // published and projected, tasks of 1,000 partitions in turn
	withOrderKeys                    // published and projected, tasks with 10,000 order keys in turn
)

// drainOurs measures from the start of the workers until every task has succeeded and is projected. The projector runs
// while the workers do. The WAL counts from the first enqueue. prepare is called before the workers start, unless it is
// nil.
func drainOurs(
	ctx context.Context, t *trial, tasks int, handler func(slots int) func(*workers.Pool) error, start drainStart,
	prepare func(context.Context, *trial) error,
) error {
	slots, err := strconv.Atoi(t.tuning)
	if err != nil {
		return err
	}
	n, err := newNode(ctx, t, false)
	if err != nil {
		return err
	}
	fill := fillOurs
	switch start {
	case withPriorities:
		fill, start = fillByPriority, afterRelay
	case withPartitions:
		fill, start = fillPartitions, afterRelay
	case withOrderKeys:
		fill, start = fillOrdered, afterRelay
	case afterRelay, fromCommit, withoutRelay:
	}
	before, err := fillBacklog(ctx, t, tasks, fill)
	if err != nil {
		return err
	}
	if start == afterRelay {
		if err := n.catchUp(ctx, tasks); err != nil {
			return err
		}
	}
	if prepare != nil {
		if err := prepare(ctx, t); err != nil {
			return err
		}
	}
	begin := time.Now()
	published := newCounter(2 * tasks)
	if start == fromCommit {
		if err := n.relay(ctx, published.add); err != nil {
			return err
		}
	}
	if start != afterRelay {
		if err := n.project(ctx); err != nil {
			return err
		}
	}
	c := newCounter(tasks)
	if err := n.work(ctx, t.db, handler(slots), c.add); err != nil {
		return err
	}
	if err := awaitClosed(ctx, c.done); err != nil {
		return err
	}
	worked := time.Since(begin)
	if start == fromCommit {
		if err := awaitClosed(ctx, published.done); err != nil {
			return err
		}
	}
	if err := n.awaitProjected(ctx); err != nil {
		return err
	}
	t.add(rate, float64(tasks)/time.Since(begin).Seconds(), "tasks/s")
	t.add("rate before projections caught up", float64(tasks)/worked.Seconds(), "tasks/s")
	if err := before.add(ctx, t, tasks); err != nil {
		return err
	}
	return n.checkSucceeded(ctx, tasks)
}

// catchUp starts relay and projector and waits until both have delivered the tasks.
func (n *node) catchUp(ctx context.Context, tasks int) error {
	c := newCounter(tasks)
	if err := errors.Join(n.relay(ctx, c.add), n.project(ctx)); err != nil {
		return err
	}
	if err := awaitClosed(ctx, c.done); err != nil {
		return err
	}
	return n.awaitProjected(ctx)
}

// checkSucceeded returns an error unless this number of tasks succeeded, in the ledger and in the projection.
func (n *node) checkSucceeded(ctx context.Context, tasks int) error {
	var events, projected int
	if err := n.t.db.QueryRow(ctx, statement("succeeded")).Scan(&events, &projected); err != nil {
		return err
	}
	if events != tasks || projected != tasks {
		return fmt.Errorf("of %d tasks %d succeeded, %d in the projection", tasks, events, projected)
	}
	return nil
}

// drainRiver measures like River's own benchmark: with its settings and its way of counting completions.
func drainRiver(ctx context.Context, t *trial, jobs int) error {
	maxWorkers, err := strconv.Atoi(t.tuning)
	if err != nil {
		return err
	}
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	before, err := fillBacklog(ctx, t, jobs, fillRiver)
	if err != nil {
		return err
	}
	client, err := newRiver(t.db, maxWorkers, riverPaces[benchPace], riverNoop{})
	if err != nil {
		return err
	}
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: jobs, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	begin := time.Now()
	if err := startRiver(ctx, t, client); err != nil {
		return err
	}
	for range jobs {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-completed:
		}
	}
	t.add(rate, float64(jobs)/time.Since(begin).Seconds(), "tasks/s")
	if err := before.add(ctx, t, jobs); err != nil {
		return err
	}
	return checkRiverFinished(ctx, t, jobs)
}

// drainRiverTx measures River's JobCompleteTx, with a connection for each worker.
func drainRiverTx(ctx context.Context, t *trial, jobs int) error {
	maxWorkers, err := strconv.Atoi(t.tuning)
	if err != nil {
		return err
	}
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	before, err := fillBacklog(ctx, t, jobs, fillRiver)
	if err != nil {
		return err
	}
	db, err := t.pool(ctx, maxWorkers+8) // 8 for River in addition to the handlers' own
	if err != nil {
		return err
	}
	c := newCounter(jobs)
	client, err := newRiver(db, maxWorkers, riverPaces[benchPace], &riverInsert{db: db, done: func() { c.add(1) }})
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := startRiver(ctx, t, client); err != nil {
		return err
	}
	if err := awaitClosed(ctx, c.done); err != nil {
		return err
	}
	t.add(rate, float64(jobs)/time.Since(begin).Seconds(), "tasks/s")
	if err := before.add(ctx, t, jobs); err != nil {
		return err
	}
	return checkRiverFinished(ctx, t, jobs)
}
