package main

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// orderMeasure measures the drain of tasks with order keys next to the same number without.
func orderMeasure() measure {
	const tasks, keys = 60_000, 10_000
	drain := func(start drainStart) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			return drainOurs(ctx, t, t.size(tasks, tasks), noopAtLeastOnce, start, nil)
		}
	}
	return measure{
		name: "order", notQuick: true, alternating: true,
		title: "60,000 tasks, a handler that does nothing, 1,000 slots; without order keys, and with 10,000",
		contenders: []contender{
			{system: ours, setting: "slots", tune: []string{"1000"}, run: drain(afterRelay)},
			{system: oursOrdered, setting: "slots", tune: []string{"1000"}, run: drain(withOrderKeys)},
		},
	}
}

// fillOrdered enqueues n tasks with 10,000 order keys in turn.
func fillOrdered(ctx context.Context, t *trial, n int) error {
	const keys = 10_000
	return fillWith(ctx, t, n, taskID, func(i int) *ledger.EnqueueOptions {
		return &ledger.EnqueueOptions{OrderKey: "customer/" + strconv.Itoa(i%keys)}
	})
}

// lineMeasure measures the time between the starts of two tasks of one line, whose handler does nothing.
func lineMeasure() measure {
	run := func(waiting int) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error { return handOver(ctx, t, t.size(waiting, waiting/20)) }
	}
	return measure{
		name: "line", notQuick: true,
		title: "from the start of a task to the start of the next one in its line; a handler that does nothing",
		contenders: []contender{
			{system: oursLine, run: run(1_000)},
			{system: oursLongLine, run: run(1_000_000)},
		},
	}
}

// handOver measures the first thousand tasks of a line in which this many wait.
func handOver(ctx context.Context, t *trial, waiting int) error {
	n, err := newNode(ctx, t, false)
	if err != nil {
		return err
	}
	options := &ledger.EnqueueOptions{OrderKey: "customer/17"}
	if err := fillWith(ctx, t, waiting, taskID, func(int) *ledger.EnqueueOptions { return options }); err != nil {
		return err
	}
	if err := n.catchUp(ctx, waiting); err != nil {
		return err
	}
	w := newStopwatch(min(waiting, 1_000))
	var started atomic.Int64
	register := func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(context.Context, *workers.Job, json.RawMessage) error {
			w.arrive(strconv.FormatInt(started.Add(1)-1, 10), time.Now().UnixNano())
			return nil
		}, &workers.KindConfig{Slots: 10}))
	}
	if err := n.work(ctx, t.db, register, nil); err != nil {
		return err
	}
	if err := awaitClosed(ctx, w.counter.done); err != nil {
		return err
	}
	for i := 1; i < len(w.starts); i++ {
		w.commits[i].Store(w.starts[i-1].Load())
	}
	w.commits[0].Store(w.starts[0].Load())
	w.add(t)
	return nil
}
