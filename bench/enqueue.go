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

// enqueueMeasures measure a business insert and an enqueue in one transaction.
func enqueueMeasures() []measure {
	var all []measure
	for _, connections := range []int{1, 8, 32} {
		by := func(run func(ctx context.Context, t *trial, connections int) error) func(context.Context, *trial) error {
			return func(ctx context.Context, t *trial) error { return run(ctx, t, connections) }
		}
		all = append(all, measure{
			name: fmt.Sprintf("enqueue-%d", connections), notQuick: connections != 32,
			title: fmt.Sprintf("business insert + enqueue a transaction, connections: %d", connections),
			contenders: []contender{
				{system: ours, run: by(enqueueOurs)},
				{system: oursExec, run: by(enqueueOursExec)},
				{system: oursPlain, notQuick: true, run: by(enqueueOursPlain)},
				{system: peerRiver, run: by(enqueueRiver)},
				{system: peerWatermill, run: by(enqueueWatermill)},
				{system: peerSkipLocked, run: by(enqueueSkipLocked)},
				{system: floorPipeline, run: by(enqueueFloor(floorTransaction))},
				{system: floorTwoTrips, run: by(enqueueFloor(frozenTransaction))},
				{system: floorPgbenchOne, run: by(enqueuePgbench(floorTransaction))},
				{system: floorPgbenchTwo, run: by(enqueuePgbench(frozenTransaction))},
			},
		})
	}
	return all
}

func enqueueOurs(ctx context.Context, t *trial, connections int) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	return measureEnqueue(ctx, t, connections, oursTransaction(kind))
}

// enqueueFloor measures the insert of commit 3f4d70b sent by pgx: the limit for a program in Go. pgbench is written in
// C and takes a smaller share of the same cores.
func enqueueFloor(run transaction) func(ctx context.Context, t *trial, connections int) error {
	return func(ctx context.Context, t *trial, connections int) error {
		if err := migrateFloor(ctx, t); err != nil {
			return err
		}
		return measureEnqueue(ctx, t, connections, run)
	}
}

// enqueueOursExec measures a transaction that waits for the result of its business insert.
func enqueueOursExec(ctx context.Context, t *trial, connections int) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	return measureEnqueue(ctx, t, connections, func(ctx context.Context, conn *pgx.Conn, id string) error {
		tx := ledger.BeginOn(ctx, conn, nil)
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, statement("effect"), id); err != nil {
			return err
		}
		_, err := kind.EnqueueAndCommit(ctx, tx, ledger.BizID(id), args, nil)
		return err
	})
}

// enqueueOursPlain measures an enqueue in a transaction of pgx.
func enqueueOursPlain(ctx context.Context, t *trial, connections int) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	return measureEnqueue(ctx, t, connections, pgxTransaction(func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := kind.Enqueue(ctx, tx, ledger.BizID(id), args, nil)
		return err
	}))
}

func enqueueRiver(ctx context.Context, t *trial, connections int) error {
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	c, err := riverProducer(t.db, riverPace{})
	if err != nil {
		return err
	}
	return measureEnqueue(ctx, t, connections, pgxTransaction(func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := c.InsertTx(ctx, tx, newRiverArgs(id), nil)
		return err
	}))
}

// transaction inserts a business row and enqueues the task with this id, on a connection.
type transaction func(ctx context.Context, conn *pgx.Conn, id string) error

// oursTransaction returns the transaction that our documentation advises if every round trip counts.
func oursTransaction(kind ledger.TypedKind[json.RawMessage]) transaction {
	return oursTransactionOf(kind, nil)
}

// oursTransactionOf is [oursTransaction] with options of the tasks.
func oursTransactionOf(kind ledger.TypedKind[json.RawMessage], o *ledger.EnqueueOptions) transaction {
	return func(ctx context.Context, conn *pgx.Conn, id string) error {
		tx := ledger.BeginOn(ctx, conn, nil)
		tx.AtCommit(statement("effect"), id)
		_, err := kind.EnqueueAndCommit(ctx, tx, ledger.BizID(id), args, o)
		return err
	}
}

// pgxTransaction returns a transaction of pgx that begins in the round trip of its first statement.
func pgxTransaction(enqueue func(ctx context.Context, tx pgx.Tx, id string) error) transaction {
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

// warmUpPrefix is the prefix of the ids of tasks that are not counted.
const warmUpPrefix = "warm-up-"

// connections returns n connections. Each has enqueued one task, which prepares statements and caches.
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
			err = run(ctx, c.Conn(), warmUpPrefix+strconv.Itoa(i))
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	return conns, release, nil
}

// measureEnqueue adds the rate of transactions and their WAL.
func measureEnqueue(ctx context.Context, t *trial, n int, run transaction) error {
	load, err := transactions(ctx, t, n, run)
	if err != nil {
		return err
	}
	t.add(rate, load.perSecond, "tx/s")
	t.add(walPerTask, load.wal, "bytes")
	return nil
}

// load is the result of [transactions].
type load struct {
	perSecond float64
	wal       float64 // bytes a transaction
	count     int     // including the warm-up
}

// transactions runs transactions on n connections for the trial's duration.
func transactions(ctx context.Context, t *trial, n int, run transaction) (load, error) {
	if err := checkpointAndAnalyze(ctx, t); err != nil {
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
	until := begin.Add(t.duration())
	err = concurrently(n, func(c int) error {
		for i := 0; time.Now().Before(until); i++ {
			if err := run(ctx, conns[c].Conn(), fmt.Sprintf("%d-%d", c, i)); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	elapsed := time.Since(begin)
	if err != nil {
		return load{}, err
	}
	err = after.read(ctx, t)
	count := done.Load()
	return load{float64(count) / elapsed.Seconds(), (after.wal - before.wal) / float64(max(count, 1)), int(count) + n},
		err
}

// bulkMeasure measures many enqueues at once, without other work.
func bulkMeasure() measure {
	fill := func(
		migrate func(context.Context, *trial) error, fill func(context.Context, *trial, int) error,
	) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			if err := migrate(ctx, t); err != nil {
				return err
			}
			if err := checkpointAndAnalyze(ctx, t); err != nil {
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
		name: "bulk", notQuick: true, title: "enqueue of 100,000 in batches, one connection",
		contenders: []contender{
			{system: ours, run: fill(migrate, fillOurs)},
			{system: peerRiver, run: fill(migrateRiver, fillRiver)},
			{system: peerSkipLocked, run: fill(migrateSkipLocked, fillSkipLocked)},
		},
	}
}
