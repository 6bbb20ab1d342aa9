package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// replaceMeasure measures enqueues that replace the args of waiting tasks, next to enqueues of new tasks.
func replaceMeasure() measure {
	const connections, keys = 8, 1_000
	run := func(enqueue transaction) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			if err := migrate(ctx, t); err != nil {
				return err
			}
			plain := func(int) *ledger.EnqueueOptions { return nil }
			if err := fillWith(ctx, t, keys, strconv.Itoa, plain); err != nil {
				return err
			}
			return measureReplace(ctx, t, connections, enqueue)
		}
	}
	return measure{
		name: "replace", notQuick: true, alternating: true,
		title: fmt.Sprintf("enqueue, connections: %d; new tasks, and IfExistsReplace of %d tasks", connections, keys),
		contenders: []contender{
			{system: ours, run: run(func(ctx context.Context, conn *pgx.Conn, id string) error {
				_, err := kind.Enqueue(ctx, conn, ledger.BizID(id), args, nil)
				return err
			})},
			{system: oursReplace, run: run(func(ctx context.Context, conn *pgx.Conn, _ string) error {
				o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
				_, err := kind.Enqueue(ctx, conn, ledger.BizID(strconv.Itoa(rand.IntN(keys))), args, o)
				return err
			})},
		},
	}
}

// measureReplace is [measureEnqueue] with the dead tuples of each enqueue.
func measureReplace(ctx context.Context, t *trial, n int, run transaction) error {
	var before, after meter
	if err := before.read(ctx, t); err != nil {
		return err
	}
	load, err := transactions(ctx, t, n, run)
	if err != nil {
		return err
	}
	if err := after.flush(ctx, t); err != nil {
		return err
	}
	t.add(rate, load.perSecond, "tx/s")
	t.add(walPerTask, load.wal, "bytes")
	t.add(deadPerTask, (after.dead-before.dead)/float64(load.count), "tuples")
	return nil
}
