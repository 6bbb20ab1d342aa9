package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// scaleMeasure measures more worker processes on one ledger, and more ledgers on one broker.
func scaleMeasure() measure {
	m := measure{
		name: "scale-out", notQuick: true,
		title: "the two drains by more worker processes, and on two ledgers of one JetStream with an account each; " +
			"all of them together",
		contenders: []contender{{
			system: "taskledger, ledgers: 2",
			run:    func(ctx context.Context, t *trial) error { return scaleOut(ctx, t, 2, 1) },
		}},
	}
	for _, processes := range []int{4, 2, 1} {
		m.contenders = append([]contender{{
			system: fmt.Sprintf("taskledger, worker processes: %d", processes),
			run:    func(ctx context.Context, t *trial) error { return scaleOut(ctx, t, 1, processes) },
		}}, m.contenders...)
	}
	return m
}

// scaleOut measures the drain of several ledgers, each with its worker processes.
func scaleOut(ctx context.Context, t *trial, ledgers, processes int) error {
	addresses, err := brokerFor(ctx, t, ledgers)
	if err != nil {
		return err
	}
	pipelines := make([]*pipeline, ledgers)
	for i := range pipelines {
		c := &pipeline{t, addresses[i]}
		if i > 0 { // the first one uses the trial's database
			if c.t, err = t.another(ctx); err != nil {
				return err
			}
		}
		if err := migrate(ctx, c.t); err != nil {
			return err
		}
		_, err1 := c.start(ctx, "relay", false, 0)
		_, err2 := c.start(ctx, "projector", false, 0)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		pipelines[i] = c
	}
	for _, exactlyOnce := range []bool{false, true} {
		if err := measureScaledDrain(ctx, t, pipelines, processes, exactlyOnce); err != nil {
			return err
		}
	}
	return nil
}

// measureScaledDrain measures from the start of the workers. The backlogs are on the stream then.
func measureScaledDrain(
	ctx context.Context, t *trial, pipelines []*pipeline, processes int, exactlyOnce bool,
) (err error) {
	tasks, slots, metric := t.size(130_000, 20_000), 1000, "rate, no-op"
	if exactlyOnce {
		tasks, slots, metric = t.size(30_000, 5_000), 16, "rate, exactly once"
	}
	for _, c := range pipelines {
		name := func(i int) string { return fmt.Sprintf("%t-%d", exactlyOnce, i) }
		if err := fillNamed(ctx, c.t, tasks, name); err != nil {
			return err
		}
		if err := errors.Join(analyze(ctx, c.t), c.awaitRelayed(ctx), c.awaitProjected(ctx)); err != nil {
			return err
		}
	}
	begin := time.Now()
	workers := make([][]*child, len(pipelines))
	for i, c := range pipelines {
		for range processes {
			worker, failed := c.start(ctx, "worker", exactlyOnce, slots)
			if failed != nil {
				return failed
			}
			workers[i] = append(workers[i], worker)
			defer func() { err = errors.Join(err, worker.stop()) }()
		}
	}
	for i := range pipelines {
		if err := awaitCount(ctx, tasks, workers[i]...); err != nil {
			return err
		}
	}
	t.add(metric, float64(tasks*len(pipelines))/time.Since(begin).Seconds(), "tasks/s")
	return nil
}
