package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// enqueueMeasures: a business insert and an enqueue in one transaction.
func enqueueMeasures() []measure {
	var all []measure
	for _, connections := range []int{1, 8, 32} {
		all = append(all, measure{
			name:  fmt.Sprintf("enqueue-%d", connections),
			title: fmt.Sprintf("business insert + enqueue a transaction, connections: %d", connections),
			contenders: []contender{
				{system: ours, run: func(ctx context.Context, t *trial) error { return enqueueOurs(ctx, t, connections) }},
				{system: peerRiver, run: func(ctx context.Context, t *trial) error { return enqueueRiver(ctx, t, connections) }},
				{system: peerWatermill, run: func(ctx context.Context, t *trial) error { return enqueueWatermill(ctx, t, connections) }},
				{system: peerSkipLocked, run: func(ctx context.Context, t *trial) error { return enqueueSkipLocked(ctx, t, connections) }},
				{system: floorPgbench, run: func(ctx context.Context, t *trial) error { return enqueuePgbench(ctx, t, connections) }},
			},
		})
	}
	return all
}

func enqueueOurs(ctx context.Context, t *trial, connections int) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	return enqueued(ctx, t, connections, func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := kind.Enqueue(ctx, tx, ledger.BizID(id), args, nil)
		return err
	})
}

func enqueueRiver(ctx context.Context, t *trial, connections int) error {
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	c, err := riverProducer(t.db)
	if err != nil {
		return err
	}
	return enqueued(ctx, t, connections, func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := c.InsertTx(ctx, tx, newRiverArgs(id), nil)
		return err
	})
}

// warmUp begins the ids of tasks that do not count.
const warmUp = "warm-up-"

// connections are n connections that have enqueued one task each, so that statements and caches
// are prepared.
func connections(ctx context.Context, t *trial, n int, enqueue func(ctx context.Context, tx pgx.Tx, id string) error) (_ []*pgxpool.Conn, release func(), err error) {
	var conns []*pgxpool.Conn
	release = func() {
		for _, c := range conns {
			c.Release()
		}
	}
	for i := range n {
		c, err := t.db.Acquire(ctx)
		if err == nil {
			conns = append(conns, c)
			err = transaction(ctx, c, warmUp+strconv.Itoa(i), enqueue)
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	return conns, release, nil
}

// enqueued measures transactions and their WAL.
func enqueued(ctx context.Context, t *trial, n int, enqueue func(ctx context.Context, tx pgx.Tx, id string) error) error {
	load, err := transactions(ctx, t, n, enqueue)
	if err != nil {
		return err
	}
	t.add(rate, load.perSecond, "tx/s")
	t.add(walPerTask, load.wal, "bytes")
	return nil
}

// load is what transactions were done.
type load struct {
	perSecond float64
	wal       float64 // bytes a transaction
	all       int     // with those that warmed up
}

// transactions runs transactions of a business row and an enqueue for a while, on n connections.
func transactions(ctx context.Context, t *trial, n int, enqueue func(ctx context.Context, tx pgx.Tx, id string) error) (load, error) {
	if err := settle(ctx, t); err != nil {
		return load{}, err
	}
	conns, release, err := connections(ctx, t, n, enqueue)
	if err != nil {
		return load{}, err
	}
	defer release()
	var before, after meter
	if err := before.read(ctx, t); err != nil {
		return load{}, err
	}
	var done atomic.Int64
	begin := time.Now()
	until := begin.Add(t.lasts())
	err = concurrently(n, func(c int) error {
		for i := 0; time.Now().Before(until); i++ {
			if err := transaction(ctx, conns[c], fmt.Sprintf("%d-%d", c, i), enqueue); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	took := time.Since(begin)
	if err != nil {
		return load{}, err
	}
	err = after.read(ctx, t)
	count := done.Load()
	return load{float64(count) / took.Seconds(), (after.wal - before.wal) / float64(max(count, 1)), int(count) + n}, err
}

func transaction(ctx context.Context, conn *pgxpool.Conn, id string, enqueue func(ctx context.Context, tx pgx.Tx, id string) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("effect"), id); err != nil {
			return err
		}
		return enqueue(ctx, tx, id)
	})
}

// bulkMeasure: many tasks at once, without any other work.
func bulkMeasure() measure {
	fill := func(migrate func(context.Context, *trial) error, fill func(context.Context, *trial, int) error) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			if err := migrate(ctx, t); err != nil {
				return err
			}
			if err := settle(ctx, t); err != nil {
				return err
			}
			var before meter
			if err := before.read(ctx, t); err != nil {
				return err
			}
			n := t.size(100_000, 20_000)
			begin := time.Now()
			if err := fill(ctx, t, n); err != nil {
				return err
			}
			t.add(rate, float64(n)/time.Since(begin).Seconds(), "tasks/s")
			return before.add(ctx, t, n)
		}
	}
	return measure{
		name: "bulk", title: "enqueue of 100,000 in batches, one connection",
		contenders: []contender{
			{system: ours, run: fill(migrate, fillOurs)},
			{system: peerRiver, run: fill(migrateRiver, fillRiver)},
			{system: peerSkipLocked, run: fill(migrateSkipLocked, fillSkipLocked)},
		},
	}
}
