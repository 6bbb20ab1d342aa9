package main

import (
	"context"
	"errors"
)

// Backlogs of the measure of memory.
const (
	behindTenth = "taskledger, a tenth waiting"
	behindWhole = "taskledger, 1,000,000 waiting (-quick: 100,000)"
)

// memoryMeasure measures the memory of relay, projector and worker with a backlog, and with a tenth of it.
func memoryMeasure() measure {
	behind := func(share int) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			return memoryBehind(ctx, t, t.size(1_000_000, 100_000)/share)
		}
	}
	return measure{
		name: "memory", notQuick: true, title: "maximum resident memory of our processes with a backlog", once: true,
		contenders: []contender{{system: behindTenth, run: behind(10)}, {system: behindWhole, run: behind(1)}},
	}
}

func memoryBehind(ctx context.Context, t *trial, tasks int) error {
	c, err := newPipeline(ctx, t)
	if err != nil {
		return err
	}
	if err := fillOurs(ctx, t, tasks); err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	relay, err := c.start(ctx, "relay", false, 0)
	if err != nil {
		return err
	}
	if err := awaitCount(ctx, tasks, relay); err != nil {
		return err
	}
	projector, err := c.start(ctx, "projector", false, 0)
	if err != nil {
		return err
	}
	if err := c.awaitProjected(ctx); err != nil {
		return err
	}
	worker, err := c.start(ctx, "worker", false, 1000)
	if err != nil {
		return err
	}
	if err := awaitCount(ctx, min(tasks, t.size(100_000, 20_000)), worker); err != nil {
		return err
	}
	for _, a := range []*child{relay, projector, worker} {
		addMemory(t, a)
	}
	return errors.Join(worker.stop(), projector.stop(), relay.stop())
}
