package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// scaleMeasure: more worker processes on one ledger, and more ledgers on one broker.
func scaleMeasure() measure {
	m := measure{
		name: "scale-out", title: "the two drains by more worker processes, and on two ledgers of one JetStream (an account each); all of them together",
		contenders: []contender{{system: "taskledger, ledgers: 2", run: func(ctx context.Context, t *trial) error { return scaleOut(ctx, t, 2, 1) }}},
	}
	for _, processes := range []int{4, 2, 1} {
		m.contenders = append([]contender{{
			system: fmt.Sprintf("taskledger, worker processes: %d", processes),
			run:    func(ctx context.Context, t *trial) error { return scaleOut(ctx, t, 1, processes) },
		}}, m.contenders...)
	}
	return m
}

// scaleOut drains so many ledgers by so many worker processes each.
func scaleOut(ctx context.Context, t *trial, ledgers, processes int) error {
	addresses, err := brokerFor(ctx, t, ledgers)
	if err != nil {
		return err
	}
	companies := make([]*company, ledgers)
	for i := range companies {
		c := &company{t, addresses[i]}
		if i > 0 { // the first has the trial's own database
			if c.t, err = t.another(ctx); err != nil {
				return err
			}
		}
		if err := migrate(ctx, c.t); err != nil {
			return err
		}
		_, err1 := c.cast(ctx, "relay", false, 0)
		_, err2 := c.cast(ctx, "projector", false, 0)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		companies[i] = c
	}
	for _, exactlyOnce := range []bool{false, true} {
		if err := scaledDrain(ctx, t, companies, processes, exactlyOnce); err != nil {
			return err
		}
	}
	return nil
}

// scaledDrain measures from the start of the workers behind relayed backlogs.
func scaledDrain(ctx context.Context, t *trial, companies []*company, processes int, exactlyOnce bool) (err error) {
	tasks, slots, metric := t.size(130_000, 20_000), 1000, "rate, no-op"
	if exactlyOnce {
		tasks, slots, metric = t.size(30_000, 5_000), 16, "rate, exactly once"
	}
	for _, c := range companies {
		if err := fillNamed(ctx, c.t, tasks, func(i int) string { return fmt.Sprintf("%t-%d", exactlyOnce, i) }); err != nil {
			return err
		}
		if err := errors.Join(analyze(ctx, c.t), c.relayed(ctx), c.projected(ctx)); err != nil {
			return err
		}
	}
	begin := time.Now()
	workers := make([][]*actor, len(companies))
	for i, c := range companies {
		for range processes {
			worker, failed := c.cast(ctx, "worker", exactlyOnce, slots)
			if failed != nil {
				return failed
			}
			workers[i] = append(workers[i], worker)
			defer func() { err = errors.Join(err, worker.end()) }()
		}
	}
	for i := range companies {
		if err := counted(ctx, tasks, workers[i]...); err != nil {
			return err
		}
	}
	t.add(metric, float64(tasks*len(companies))/time.Since(begin).Seconds(), "tasks/s")
	return nil
}
