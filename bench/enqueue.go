package main

import (
	"context"
	"encoding/json"
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
				{system: oursPlain, run: func(ctx context.Context, t *trial) error { return enqueueOursPlain(ctx, t, connections) }},
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
	return enqueued(ctx, t, connections, ofOurs(kind))
}

// enqueueOursPlain is for those who have a transaction of pgx.
func enqueueOursPlain(ctx context.Context, t *trial, connections int) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	return enqueued(ctx, t, connections, inTx(func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := kind.Enqueue(ctx, tx, ledger.BizID(id), args, nil)
		return err
	}))
}

func enqueueRiver(ctx context.Context, t *trial, connections int) error {
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	c, err := riverProducer(t.db)
	if err != nil {
		return err
	}
	return enqueued(ctx, t, connections, inTx(func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := c.InsertTx(ctx, tx, newRiverArgs(id), nil)
		return err
	}))
}

// transaction is one of a business, on a connection: a row and the task of this id.
type transaction func(ctx context.Context, conn *pgx.Conn, id string) error

// ofOurs are transactions as our documentation advises where each round trip counts.
func ofOurs(kind ledger.TypedKind[json.RawMessage]) transaction {
	return func(ctx context.Context, conn *pgx.Conn, id string) error {
		tx := ledger.BeginOn(ctx, conn, nil)
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, statement("effect"), id); err != nil {
			return err
		}
		_, err := kind.EnqueueAndCommit(ctx, tx, ledger.BizID(id), args, nil)
		return err
	}
}

// inTx are transactions of pgx, which begin in the round trip of their first statement, too.
func inTx(enqueue func(ctx context.Context, tx pgx.Tx, id string) error) transaction {
	return func(ctx context.Context, conn *pgx.Conn, id string) (err error) {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue(statement("effect"), id)
		results := conn.SendBatch(ctx, b)
		tx := results.Tx()
		defer func() { _ = tx.Rollback(ctx) }()
		if err := results.Close(); err != nil {
			return err
		}
		if err := enqueue(ctx, tx, id); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
}

// warmUp begins the ids of tasks that do not count.
const warmUp = "warm-up-"

// connections are n connections that have enqueued one task each, so that statements and caches
// are prepared.
func connections(ctx context.Context, t *trial, n int, run transaction) (_ []*pgxpool.Conn, release func(), err error) {
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
			err = run(ctx, c.Conn(), warmUp+strconv.Itoa(i))
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	return conns, release, nil
}

// enqueued measures transactions and their WAL.
func enqueued(ctx context.Context, t *trial, n int, run transaction) error {
	load, err := transactions(ctx, t, n, run)
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
func transactions(ctx context.Context, t *trial, n int, run transaction) (load, error) {
	if err := settle(ctx, t); err != nil {
		return load{}, err
	}
	conns, release, err := connections(ctx, t, n, run)
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
			if err := run(ctx, conns[c].Conn(), fmt.Sprintf("%d-%d", c, i)); err != nil {
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
