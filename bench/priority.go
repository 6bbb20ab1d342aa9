package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// priorityMeasure measures from the return of an urgent task's commit to its handler, next to a backlog of tasks of the
// lowest priority that keeps all slots busy.
func priorityMeasure() measure {
	run := func(waiting int) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			return latencyBeside(ctx, t, t.size(waiting, waiting/20),
				ledger.EnqueueOptions{Priority: ledger.PriorityLow},
				ledger.EnqueueOptions{Priority: ledger.PriorityUrgent})
		}
	}
	return measure{
		name: "priority", title: "enqueue commit of an urgent task to its handler, 20 a second; " +
			"100 slots, handlers of 50 ms; without other tasks, and next to 1,000,000 low ones",
		notQuick: true,
		contenders: []contender{
			{system: ours, run: run(0)},
			{system: oursBacklog, run: run(1_000_000)},
		},
	}
}

// latencyBeside runs all services and a worker, with this many waiting tasks. It measures later tasks.
func latencyBeside(ctx context.Context, t *trial, waiting int, of, measured ledger.EnqueueOptions) error {
	const perSecond, slots, takes = 20, 100, 50 * time.Millisecond
	n, err := newNode(ctx, t, false)
	if err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprint("waiting-", i) }
	if err := fillWith(ctx, t, waiting, name, func(int) *ledger.EnqueueOptions { return &of }); err != nil {
		return err
	}
	w := newStopwatch(max(1, int(t.duration().Seconds()*perSecond)))
	register := func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(ctx context.Context, job *workers.Job, _ json.RawMessage) error {
			w.arrive(string(job.Key.BizID), time.Now().UnixNano())
			select {
			case <-time.After(takes):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, &workers.KindConfig{Slots: slots}))
	}
	if err := errors.Join(n.relay(ctx, nil), n.project(ctx), n.work(ctx, t.db, register, nil)); err != nil {
		return err
	}
	if err := w.offer(ctx, t, perSecond, oursTransactionOf(kind, &measured)); err != nil {
		return err
	}
	if err := awaitClosed(ctx, w.counter.done); err != nil {
		return err
	}
	w.add(t)
	return nil
}
