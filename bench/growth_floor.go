package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const floorGrowthName = "growth-floor"

// floorGrowth is a ledger of the floor, for all rounds. Its worker drains the oldest tasks first.
type floorGrowth struct {
	t       *trial
	f       *floor
	waiting int // tasks that wait before the first turn
	turn    int
}

// floorGrowthMeasure measures the floor's rates next to many waiting tasks: the machine's limit.
func floorGrowthMeasure() measure {
	return measure{
		name: floorGrowthName, alternating: true, notQuick: true,
		title: "the floor's own rates beside 1,000,000 waiting tasks",
		contenders: []contender{
			(&floorGrowth{}).contender(floorPipeline),
			(&floorGrowth{waiting: 1_000_000}).contender(floorUnderWaiting),
		},
	}
}

func (g *floorGrowth) contender(system string) contender {
	return contender{system: system, open: g.open, run: g.rates}
}

func (g *floorGrowth) open(ctx context.Context, t *trial) (err error) {
	g.t = t
	if g.f, err = newFloor(ctx, t); err != nil || g.waiting == 0 {
		return err
	}
	waiting := t.size(g.waiting, g.waiting/10)
	if err := errors.Join(g.fill(ctx, "waiting", waiting), checkpointAndAnalyze(ctx, t)); err != nil {
		return err
	}
	published := newCounter(waiting)
	g.f.published = published.add
	failed, stop := g.run(ctx, g.f.relay, g.f.project)
	if err = awaitFloor(failed, published); err == nil {
		err = g.awaitProjected(ctx)
	}
	return errors.Join(err, stop(), vacuum(ctx, t))
}

func (g *floorGrowth) fill(ctx context.Context, prefix string, n int) error {
	return fillFloorNamed(ctx, g.t, n, func(i int) string { return prefix + "-" + taskID(i) })
}

// awaitProjected waits until the projection has every event.
func (g *floorGrowth) awaitProjected(ctx context.Context) error {
	return await(ctx, func() (isWhole bool, err error) {
		return isWhole, g.t.db.QueryRow(ctx, statement("floor_projected")).Scan(&isWhole)
	})
}

// run runs parts of the floor until stop is called.
func (g *floorGrowth) run(ctx context.Context, parts ...func(context.Context) error) (
	failed <-chan error, stop func() error,
) {
	running := &trial{config: g.t.config}
	return runFloor(ctx, running, parts...), running.close
}

// rates measures relay and drain in the same way as ours, after a checkpoint, and a task's cost in the drain.
func (g *floorGrowth) rates(ctx context.Context, t *trial) (err error) {
	g.turn++
	t.costs = true
	tasks := t.size(130_000, 20_000)
	err = errors.Join(checkpointAndAnalyze(ctx, t), g.fill(ctx, fmt.Sprintf("turn-%d", g.turn), tasks), analyze(ctx, t))
	if err != nil {
		return err
	}
	published := newCounter(tasks)
	g.f.published = published.add
	begin := time.Now()
	failed, stop := g.run(ctx, g.f.relay, g.f.project)
	defer func() { err = errors.Join(err, stop(), vacuum(ctx, t)) }()
	if err := awaitFloor(failed, published); err != nil {
		return err
	}
	t.add("relay rate", float64(tasks)/time.Since(begin).Seconds(), "events/s")
	if err := g.awaitProjected(ctx); err != nil {
		return err
	}
	return g.drain(ctx, t, tasks)
}

// drain measures the drain of tasks. The worker also finishes other tasks that have arrived by then.
func (g *floorGrowth) drain(ctx context.Context, t *trial, tasks int) error {
	succeeded := newCounter(tasks)
	var all atomic.Int64
	g.f.succeeded = func(n int) { all.Add(int64(n)); succeeded.add(n) }
	var before, after meter
	if err := before.read(ctx, t); err != nil {
		return err
	}
	begin := time.Now()
	failed, stop := g.run(ctx, g.f.work)
	err := awaitFloor(failed, succeeded)
	t.add("drain rate", float64(tasks)/time.Since(begin).Seconds(), "tasks/s")
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if err := errors.Join(g.awaitProjected(ctx), after.read(ctx, t)); err != nil {
		return err
	}
	drained := float64(all.Load())
	t.add(walPerTask, (after.wal-before.wal)/drained, "bytes")
	if after.postgres > 0 {
		cpu := func(m meter) float64 { return m.postgres + m.broker + m.ourselves }
		t.add(cpuPerTask, 1e6*(cpu(after)-cpu(before))/drained, "µs")
	}
	return nil
}
