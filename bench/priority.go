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
	return measure{
		name: "priority", title: "enqueue commit of an urgent task to its handler, 20 a second; " +
			"100 slots, handlers of 50 ms; without other tasks, and next to 200,000 low ones",
		notQuick: true,
		contenders: []contender{
			{system: ours, run: func(ctx context.Context, t *trial) error { return latencyOfUrgent(ctx, t, 0) }},
			{system: oursPriorities, run: func(ctx context.Context, t *trial) error {
				return latencyOfUrgent(ctx, t, t.size(200_000, 60_000))
			}},
		},
	}
}

// latencyOfUrgent runs all services and a worker, with this many low tasks.
func latencyOfUrgent(ctx context.Context, t *trial, low int) error {
	const perSecond, slots, takes = 20, 100, 50 * time.Millisecond
	n, err := newNode(ctx, t, false)
	if err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprint("low-", i) }
	options := &ledger.EnqueueOptions{Priority: ledger.PriorityLow}
	if err := fillWith(ctx, t, low, name, func(int) *ledger.EnqueueOptions { return options }); err != nil {
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
	if err := w.offer(ctx, t, perSecond, oursTransaction(kind.WithPriority(ledger.PriorityUrgent))); err != nil {
		return err
	}
	if err := awaitClosed(ctx, w.counter.done); err != nil {
		return err
	}
	w.add(t)
	return nil
}
