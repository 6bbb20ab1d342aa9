package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// Conditions of the measure of growth. Each is taskledger on one ledger for all rounds.
const (
	underSnapshot = "taskledger, snapshot held"
	underForeign  = "taskledger, foreign write transaction"
	underWaiting  = "taskledger, many waiting"
	underHistory  = "taskledger, long history"
	// The list of unfinished tasks is longest, and what it leaves cannot be removed.
	underWaitingHeld = "taskledger, many waiting, snapshot held"
)

// growth is one ledger under one condition.
type growth struct {
	*pipeline
	round int
	// prepare fills the ledger once and returns its number of events. Default: none.
	prepare func(ctx context.Context, g *growth) (events int, err error)
	// hold begins a transaction that lasts for a round. Default: none.
	hold func(ctx context.Context, t *trial) (release func() error, err error)
}

// growthMeasure measures our rates under conditions, and on a small and idle ledger.
func growthMeasure() measure {
	return measure{
		name: "growth",
		title: "our own rates: 1,000,000 waiting, 5,000,000 finished, a snapshot held, " +
			"a write transaction open in another database",
		contenders: []contender{
			(&growth{}).contender(ours),
			(&growth{hold: holdSnapshot}).contender(underSnapshot),
			(&growth{hold: holdForeignWrite}).contender(underForeign),
			(&growth{prepare: manyWaiting}).contender(underWaiting),
			(&growth{prepare: longHistory}).contender(underHistory),
			(&growth{prepare: manyWaiting, hold: holdSnapshot}).contender(underWaitingHeld),
		},
	}
}

func manyWaiting(ctx context.Context, g *growth) (events int, err error) {
	n := g.t.size(1_000_000, 100_000)
	return n, g.fill(ctx, "waiting", n)
}

func longHistory(ctx context.Context, g *growth) (events int, err error) {
	n := g.t.size(5_000_000, 500_000)
	return 2 * n, batches(n, 20_000, func(from, to int) error {
		_, err := g.t.db.Exec(ctx, statement("history"), from, to, string(args))
		return err
	})
}

func (g *growth) contender(system string) contender {
	return contender{system: system, open: g.open, run: g.rates}
}

// open creates the ledger and waits until relay and projector have delivered and audited its events.
func (g *growth) open(ctx context.Context, t *trial) (err error) {
	if g.pipeline, err = newPipeline(ctx, t); err != nil || g.prepare == nil {
		return err
	}
	events, err := g.prepare(ctx, g)
	if err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	relay, err1 := g.start(ctx, "relay", false, 0)
	projector, err2 := g.start(ctx, "projector", false, 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	err = errors.Join(awaitCount(ctx, events, relay), g.awaitRelayed(ctx), g.awaitProjected(ctx),
		g.awaitAudited(ctx), relay.stop(), projector.stop())
	if err != nil {
		return err
	}
	_, err = t.db.Exec(ctx, "vacuum analyze")
	return err
}

// fill enqueues n tasks of the kind that has workers.
func (g *growth) fill(ctx context.Context, prefix string, n int) error {
	return fillNamed(ctx, g.t, n, func(i int) string { return prefix + "-" + taskID(i) })
}

// rates measures enqueue, relay and drain, one after the other, and what they wrote.
func (g *growth) rates(ctx context.Context, t *trial) (err error) {
	g.round++
	if g.hold != nil {
		release, failed := g.hold(ctx, t)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	var before meter
	if err := before.read(ctx, t); err != nil {
		return err
	}
	run := oursTransaction(ledger.MustKind[json.RawMessage]("bench.other")) // without workers
	load, err := transactions(ctx, t, 32, func(ctx context.Context, conn *pgx.Conn, id string) error {
		return run(ctx, conn, fmt.Sprintf("%d-%s", g.round, id))
	})
	if err != nil {
		return err
	}
	t.add("enqueue rate", load.perSecond, "tx/s")
	tasks := t.size(130_000, 20_000)
	if err := g.fill(ctx, fmt.Sprintf("round-%d", g.round), tasks); err != nil {
		return err
	}
	if err := analyze(ctx, t); err != nil {
		return err
	}
	if err := g.relayAndDrain(ctx, t, load.count, tasks); err != nil {
		return err
	}
	return before.addWrites(ctx, t, load.count+tasks)
}

// relayAndDrain measures the relay of all pending events, then the workers.
func (g *growth) relayAndDrain(ctx context.Context, t *trial, enqueued, tasks int) error {
	relay, err1 := g.start(ctx, "relay", false, 0)
	begin := time.Now()
	projector, err2 := g.start(ctx, "projector", false, 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := awaitCount(ctx, enqueued+tasks, relay); err != nil {
		return err
	}
	t.add("relay rate", float64(enqueued+tasks)/time.Since(begin).Seconds(), "events/s")
	if err := g.awaitProjected(ctx); err != nil {
		return err
	}
	begin = time.Now()
	worker, err := g.start(ctx, "worker", false, 1000)
	if err != nil {
		return err
	}
	if err := awaitCount(ctx, tasks, worker); err != nil {
		return err
	}
	t.add("drain rate", float64(tasks)/time.Since(begin).Seconds(), "tasks/s")
	for _, a := range []*child{relay, projector, worker} {
		addMemory(t, a)
	}
	return errors.Join(worker.stop(), g.awaitRelayed(ctx), g.awaitProjected(ctx), projector.stop(), relay.stop())
}

// holdSnapshot holds a read-only snapshot of the ledger's database.
func holdSnapshot(ctx context.Context, t *trial) (release func() error, err error) {
	return holdTransaction(ctx, t.url, "begin isolation level repeatable read read only; select count(*) from pg_class")
}

// holdForeignWrite holds a transaction that has written, in another database of the server.
func holdForeignWrite(ctx context.Context, t *trial) (release func() error, err error) {
	return holdTransaction(ctx, t.server.base, "begin; create temporary table written as select 1 as one")
}

func holdTransaction(ctx context.Context, address, sql string) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, sql); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return func() error { return conn.Close(context.Background()) }, nil // which rolls back
}

// stallMeasure measures relays while a transaction of another database is open.
func stallMeasure() measure {
	return measure{
		name: "stall", notQuick: true,
		title: "relay of what was committed behind a write transaction open in another database, for a while",
		contenders: []contender{
			{system: ours, run: func(ctx context.Context, t *trial) error {
				n, err := newNode(ctx, t, false)
				if err != nil {
					return err
				}
				fill := func(n int) error { return fillOurs(ctx, t, n) }
				return measureStall(ctx, t, fill, func(add func(int)) error { return n.relay(ctx, add) })
			}},
			{system: peerWatermill, setting: forwarderSetting, tune: []string{"1000"},
				run: func(ctx context.Context, t *trial) error {
					db, address, err := prepareForwarder(ctx, t, false)
					if err != nil {
						return err
					}
					fill := func(n int) error { return fillWatermill(ctx, db, n) }
					return measureStall(ctx, t, fill, func(add func(int)) error {
						return forward(ctx, t, db, address, add)
					})
				}},
		},
	}
}

func measureStall(ctx context.Context, t *trial, fill func(n int) error, relay func(add func(int)) error) error {
	release, err := holdForeignWrite(ctx, t)
	if err != nil {
		return err
	}
	t.atEnd(release)
	n := t.size(20_000, 5_000)
	if err := fill(n); err != nil {
		return err
	}
	c := newCounter(n)
	begin := time.Now()
	if err := relay(c.add); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
	case <-time.After(max(t.duration(), time.Second)):
	}
	t.add(rate, float64(int64(n)-c.left.Load())/time.Since(begin).Seconds(), "events/s")
	return nil
}
