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

const (
	growthName = "growth"
	// controlName measures the growth ratios without any condition, which shows how far they can be trusted.
	controlName = "growth-control"
)

// Conditions of the measure of growth. Each is taskledger on one ledger for all rounds.
const (
	underNothing  = "taskledger, again" // a second small and idle ledger
	underSnapshot = "taskledger, snapshot held"
	underForeign  = "taskledger, foreign write transaction"
	underWaiting  = "taskledger, many waiting"
	underHistory  = "taskledger, long history"
	// The list of unfinished tasks is longest, and its dead rows cannot be removed.
	underWaitingHeld = "taskledger, many waiting, snapshot held"
)

// growth is one ledger under one condition.
type growth struct {
	*pipeline
	turn int
	// prepare fills the ledger once and returns its number of events. Default: none.
	prepare func(ctx context.Context, g *growth) (events int, err error)
	events  int // that it has returned
	// finished is how many of the tasks that it has inserted have succeeded.
	finished int
	// hold begins a transaction that lasts for a turn. Default: none.
	hold func(ctx context.Context, t *trial) (release func() error, err error)
	// services are the relay and the projector while the ledger is prepared.
	services []*child
}

// growthMeasure measures our rates under conditions. The small, idle ledger takes a turn before and after each turn of
// another ledger, because the machine's speed varies.
func growthMeasure() measure {
	return measure{
		name: growthName, alternating: true, quickRounds: 2,
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

// controlMeasure compares two ledgers without a condition.
func controlMeasure() measure {
	return measure{
		name: controlName, alternating: true, notQuick: true,
		title:      "our own rates on two small and idle ledgers: the noise of growth",
		contenders: []contender{(&growth{}).contender(ours), (&growth{}).contender(underNothing)},
	}
}

func manyWaiting(ctx context.Context, g *growth) (events int, err error) {
	n := g.t.size(1_000_000, 100_000)
	return n, g.fill(ctx, "waiting", n)
}

func longHistory(ctx context.Context, g *growth) (events int, err error) {
	n := g.t.size(5_000_000, 500_000)
	g.finished = n
	return 2 * n, batches(n, 20_000, func(from, to int) error {
		_, err := g.t.db.Exec(ctx, statement("history"), from, to, string(args))
		return err
	})
}

func (g *growth) contender(system string) contender {
	return contender{system: system, open: g.open, ready: g.ready, run: g.rates}
}

// open creates the ledger. Relay and projector begin to deliver what fills it.
func (g *growth) open(ctx context.Context, t *trial) (err error) {
	if g.pipeline, err = newPipeline(ctx, t); err != nil || g.prepare == nil {
		return err
	}
	if g.events, err = g.prepare(ctx, g); err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	relay, err1 := g.start(ctx, "relay", false, 0)
	projector, err2 := g.start(ctx, "projector", false, 0)
	g.services = []*child{relay, projector}
	return errors.Join(err1, err2)
}

// ready waits until relay and projector have delivered and audited the events, and unfinished tasks are listed. All of
// that would take time of the turns.
func (g *growth) ready(ctx context.Context, t *trial) error {
	if g.prepare != nil {
		err := errors.Join(awaitCount(ctx, g.events, g.services[0]), g.awaitRelayed(ctx), g.awaitProjected(ctx))
		if err == nil {
			err = g.awaitSettled(ctx)
		}
		for _, a := range g.services {
			err = errors.Join(err, a.stop())
		}
		if err != nil {
			return err
		}
	}
	var finished int
	if err := g.readFinished(ctx, "bench.history", &finished); err != nil {
		return err
	}
	if finished != g.finished {
		return fmt.Errorf("%d of the %d prepared tasks have succeeded", finished, g.finished)
	}
	return vacuum(ctx, t)
}

// vacuum does what autovacuum would do later, in the turn of another ledger.
func vacuum(ctx context.Context, t *trial) error {
	_, err := t.db.Exec(ctx, "vacuum")
	return err
}

// fill enqueues n tasks of the kind that has workers.
func (g *growth) fill(ctx context.Context, prefix string, n int) error {
	return fillNamed(ctx, g.t, n, func(i int) string { return prefix + "-" + taskID(i) })
}

// rates measures enqueue, relay and drain one after the other, a task's cost, and other work on the machine.
func (g *growth) rates(ctx context.Context, t *trial) error {
	g.turn++
	t.costs = true
	var begin, end meter
	began := time.Now()
	if err := begin.read(ctx, t); err != nil {
		return err
	}
	release := func() error { return nil }
	if g.hold != nil {
		var err error
		if release, err = g.hold(ctx, t); err != nil {
			return err
		}
	}
	err := errors.Join(g.underCondition(ctx, t), release())
	if err == nil {
		err = end.read(ctx, t)
	}
	if err != nil {
		return err
	}
	if end.postgres > 0 {
		t.add("other work", max(end.others-begin.others, 0)/time.Since(began).Seconds(), "cores")
	}
	return vacuum(ctx, t)
}

func (g *growth) underCondition(ctx context.Context, t *trial) error {
	run := oursTransaction(ledger.MustKind[json.RawMessage]("bench.other")) // without workers
	load, err := transactions(ctx, t, 32, func(ctx context.Context, conn *pgx.Conn, id string) error {
		return run(ctx, conn, fmt.Sprintf("%d-%s", g.turn, id))
	})
	if err != nil {
		return err
	}
	t.add("enqueue rate", load.perSecond, "tx/s")
	tasks := t.size(130_000, 20_000)
	if err := awaitDisconnected(ctx, t); err != nil { // sessions that end while their CPU time is read count twice
		return err
	}
	var before meter
	if err := before.read(ctx, t); err != nil {
		return err
	}
	if err := g.fill(ctx, fmt.Sprintf("turn-%d", g.turn), tasks); err != nil {
		return err
	}
	if err := analyze(ctx, t); err != nil {
		return err
	}
	return g.relayAndDrain(ctx, t, &before, load.count, tasks)
}

// relayAndDrain measures the relay of all pending events, then the workers. The workers of a ledger with many waiting
// tasks also finish tasks of other turns.
func (g *growth) relayAndDrain(ctx context.Context, t *trial, before *meter, enqueued, tasks int) error {
	relay, err1 := g.start(ctx, "relay", false, 0)
	projector, err2 := g.start(ctx, "projector", false, 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := awaitCount(ctx, enqueued+tasks, relay); err != nil {
		return err
	}
	t.add("relay rate", relay.rate(enqueued+tasks), "events/s")
	if err := g.awaitProjected(ctx); err != nil {
		return err
	}
	costs := growthCosts{before: before, services: []*child{relay, projector}, enqueued: enqueued + tasks}
	if err := costs.begin(ctx, g); err != nil {
		return err
	}
	worker, err := g.start(ctx, "worker", false, 1000)
	if err != nil {
		return err
	}
	if err := awaitCount(ctx, tasks, worker); err != nil {
		return err
	}
	t.add("drain rate", worker.rate(tasks), "tasks/s")
	for _, a := range []*child{relay, projector, worker} {
		addMemory(t, a)
	}
	costs.stopped = processSeconds(worker.command.Process.Pid)
	err = errors.Join(worker.stop(), g.awaitRelayed(ctx), g.awaitProjected(ctx))
	if err != nil {
		return err
	}
	return costs.add(ctx, g)
}

// growthCosts contains a turn's counters, from which the costs of a task follow: relay and projection per enqueued
// task, the drain per task that succeeded.
type growthCosts struct {
	before   *meter // before the tasks of the drain were enqueued
	services []*child
	enqueued int
	drain    meter   // before the workers started
	cpu      float64 // of the services, then
	finished int     // tasks, then
	stopped  float64 // CPU of the workers
}

func (c *growthCosts) servicesSeconds() (sum float64) {
	for _, a := range c.services {
		sum += processSeconds(a.command.Process.Pid)
	}
	return sum
}

// begin reads the counters before the workers start.
func (c *growthCosts) begin(ctx context.Context, g *growth) error {
	c.cpu = c.servicesSeconds()
	return errors.Join(c.drain.read(ctx, g.t), g.readFinished(ctx, kind.Name(), &c.finished))
}

// add adds the costs of a task, and stops the services.
func (c *growthCosts) add(ctx context.Context, g *growth) error {
	var end meter
	var finished int
	cpu := c.servicesSeconds()
	for _, a := range c.services {
		if err := a.stop(); err != nil {
			return err
		}
	}
	if err := awaitDisconnected(ctx, g.t); err != nil {
		return err
	}
	if err := errors.Join(end.read(ctx, g.t), g.readFinished(ctx, kind.Name(), &finished)); err != nil {
		return err
	}
	enqueued, drained := float64(c.enqueued), float64(max(finished-c.finished, 1))
	g.t.add(walPerTask, (c.drain.wal-c.before.wal)/enqueued+(end.wal-c.drain.wal)/drained, "bytes")
	g.t.add(deadPerTask, (end.dead-c.drain.dead)/drained, "tuples")
	if end.postgres > 0 {
		servers := func(m meter) float64 { return m.postgres + m.broker }
		g.t.add(cpuPerTask, 1e6*((servers(c.drain)-servers(*c.before)+c.cpu)/enqueued+
			(servers(end)-servers(c.drain)+cpu-c.cpu+c.stopped)/drained), "µs")
	}
	return nil
}

// readFinished reads the number of tasks of a kind that have succeeded.
func (g *growth) readFinished(ctx context.Context, of ledger.Kind, n *int) error {
	return g.t.db.QueryRow(ctx, statement("finished"), string(of)).Scan(n)
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
					address, err := prepareForwarder(ctx, t, false)
					if err != nil {
						return err
					}
					fill := func(n int) error { return fillWatermill(ctx, t.db, n) }
					return measureStall(ctx, t, fill, func(add func(int)) error {
						return forward(ctx, t, address, add)
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
