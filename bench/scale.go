package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// scaleMeasure: more worker processes on one ledger.
func scaleMeasure() measure {
	m := measure{name: "scale-out", title: "the two drains by 1, 2 and 4 worker processes, relay and projector in processes of their own"}
	for _, processes := range []int{1, 2, 4} {
		m.contenders = append(m.contenders, contender{
			system: fmt.Sprintf("taskledger, worker processes: %d", processes),
			run:    func(ctx context.Context, t *trial) error { return scaleOut(ctx, t, processes) },
		})
	}
	return m
}

func scaleOut(ctx context.Context, t *trial, processes int) error {
	c, err := newCompany(ctx, t)
	if err != nil {
		return err
	}
	relay, err1 := c.cast(ctx, "relay", false, 0)
	projector, err2 := c.cast(ctx, "projector", false, 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, exactlyOnce := range []bool{false, true} {
		if err := c.scaledDrain(ctx, processes, exactlyOnce); err != nil {
			return err
		}
	}
	return errors.Join(relay.end(), projector.end())
}

// scaledDrain measures from the start of the processes behind a relayed backlog.
func (c *company) scaledDrain(ctx context.Context, processes int, exactlyOnce bool) error {
	tasks, slots, metric := c.t.size(130_000, 20_000), 1000, "rate, no-op"
	if exactlyOnce {
		tasks, slots, metric = c.t.size(30_000, 5_000), 16, "rate, exactly once"
	}
	if err := fillNamed(ctx, c.t, tasks, func(i int) string { return fmt.Sprintf("%t-%d", exactlyOnce, i) }); err != nil {
		return err
	}
	if err := errors.Join(analyze(ctx, c.t), c.relayed(ctx), c.projected(ctx)); err != nil {
		return err
	}
	begin := time.Now()
	workers := make([]*actor, processes)
	for i := range workers {
		var err error
		if workers[i], err = c.cast(ctx, "worker", exactlyOnce, slots); err != nil {
			return err
		}
	}
	if err := counted(ctx, tasks, workers...); err != nil {
		return err
	}
	c.t.add(metric, float64(tasks)/time.Since(begin).Seconds(), "tasks/s")
	var err error
	for _, a := range workers {
		err = errors.Join(err, a.end())
	}
	return err
}
