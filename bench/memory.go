package main

import (
	"context"
	"errors"
)

// Backlogs that memory is measured behind.
const (
	behindTenth = "taskledger, a tenth waiting"
	behindWhole = "taskledger, 1,000,000 waiting (-quick: 100,000)"
)

// memoryMeasure: what relay, projector and worker need behind a backlog, and behind a tenth of it.
func memoryMeasure() measure {
	behind := func(share int) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			return memoryBehind(ctx, t, t.size(1_000_000, 100_000)/share)
		}
	}
	return measure{
		name: "memory", title: "resident memory of our processes behind a backlog, at most", once: true,
		contenders: []contender{{system: behindTenth, run: behind(10)}, {system: behindWhole, run: behind(1)}},
	}
}

func memoryBehind(ctx context.Context, t *trial, tasks int) error {
	c, err := newCompany(ctx, t)
	if err != nil {
		return err
	}
	if err := fillOurs(ctx, t, tasks); err != nil {
		return err
	}
	if err := settle(ctx, t); err != nil {
		return err
	}
	relay, err := c.cast(ctx, "relay", false, 0)
	if err != nil {
		return err
	}
	if err := counted(ctx, tasks, relay); err != nil {
		return err
	}
	projector, err := c.cast(ctx, "projector", false, 0)
	if err != nil {
		return err
	}
	if err := c.projected(ctx); err != nil {
		return err
	}
	worker, err := c.cast(ctx, "worker", false, 1000)
	if err != nil {
		return err
	}
	if err := counted(ctx, min(tasks, t.size(100_000, 20_000)), worker); err != nil {
		return err
	}
	for _, a := range []*actor{relay, projector, worker} {
		addMemory(t, a)
	}
	return errors.Join(worker.end(), projector.end(), relay.end())
}
