package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// everydayMeasures measure the CPU time of all processes except the producers' at rates far below the limit, and in the
// same run the latency from the return of a commit to the start of the handler. A handler sleeps for a millisecond. At
// rate 0 the services are idle.
func everydayMeasures() []measure {
	var all []measure
	for _, perSecond := range []int{0, 1, 50, 200, 500, 800, 2000} {
		name := fmt.Sprintf("everyday-%d", perSecond)
		title := fmt.Sprintf("CPU and latency at %d tasks a second", perSecond)
		if perSecond == 0 {
			name, title = "idle", "CPU of idle services"
		}
		all = append(all, measure{
			name: name, title: title + ", handlers of 1 ms, producers not counted", onceQuick: true,
			notQuick: perSecond == 800, contenders: everydayContenders(perSecond),
		})
	}
	return all
}

func everydayContenders(perSecond int) []contender {
	byOurs := func(system string, notQuick bool, o oursEveryday) contender {
		return contender{system: system, notQuick: notQuick, run: func(ctx context.Context, t *trial) error {
			return everydayOurs(ctx, t, perSecond, o)
		}}
	}
	byRiver := func(system, pace string, notQuick bool) contender {
		return contender{system: system, notQuick: notQuick, setting: "FetchCooldown and FetchPollInterval",
			tune: []string{pace}, run: func(ctx context.Context, t *trial) error {
				return everydayRiver(ctx, t, perSecond)
			}}
	}
	byFloor := func(system, budget string, notQuick bool) contender {
		return contender{system: system, notQuick: notQuick, setting: "latency budget of the relay",
			tune: []string{budget}, run: func(ctx context.Context, t *trial) error {
				return everydayFloor(ctx, t, perSecond)
			}}
	}
	all := []contender{byOurs(ours, false, oursEveryday{}), byRiver(peerRiver, everydayPace, perSecond <= 1)}
	switch perSecond {
	case 0:
		all = append(all, byOurs(oursManyKinds, true, oursEveryday{otherKinds: 999}))
	case 50, 200, 500:
		all = append(all, byOurs(oursOneProcess, true, oursEveryday{oneProcess: true}),
			byFloor(floorPipeline, "5ms", perSecond == 50))
	}
	if perSecond == 200 { // other settings of the same systems, each at one rate
		all = append(all, byOurs(oursReplicated, true, oursEveryday{replicas: 3}),
			byRiver(riverPolling, pollingPace, true), byFloor(floorRare, "20ms", true))
	}
	return all
}

const subscribersName = "subscribers"

// subscribers returns the system with n subscribers of the feed.
func subscribers(n int) string { return fmt.Sprintf("taskledger, subscribers: %d", n) }

// subscribersMeasure measures the cost of subscribers whose filter matches no event. They run in the process of serve,
// like webhooks.
func subscribersMeasure() measure {
	m := measure{
		name: subscribersName, onceQuick: true,
		title: "CPU and write transactions at 100 tasks a second, and subscribers whose filter matches no event",
	}
	for _, n := range []int{0, 5, 20} {
		system := ours
		if n > 0 {
			system = subscribers(n)
		}
		m.contenders = append(m.contenders, contender{
			system: system, notQuick: n == 5,
			run: func(ctx context.Context, t *trial) error {
				return everydayOurs(ctx, t, 100, oursEveryday{subscribers: n})
			},
		})
	}
	return m
}

// oursEveryday is how taskledger runs at an even rate. The zero value has one process with the services of the command
// serve, and one with workers.
type oursEveryday struct {
	oneProcess  bool // services and workers in one process
	replicas    int  // of the stream, on as many servers. Default: 1
	subscribers int  // in the process of the services
	otherKinds  int  // of the worker, without tasks
}

func everydayOurs(ctx context.Context, t *trial, perSecond int, o oursEveryday) error {
	if err := migrate(ctx, t); err != nil {
		return err
	}
	replicas := max(o.replicas, 1)
	address, err := brokerOf(ctx, t, replicas, false)
	if err != nil {
		return err
	}
	e := newEveryday(t, perSecond, oursTransaction(kind))
	settings := serviceSettings{
		DatabaseURL: t.url, NATSURL: address, Slots: 100, Replicas: replicas, Subscribers: o.subscribers,
	}
	if o.otherKinds > 0 {
		settings.OtherKinds = t.size(o.otherKinds, o.otherKinds)
	}
	roles := []string{"serve", "everyday-worker"}
	if o.oneProcess {
		roles = []string{"everyday-all"}
	}
	for _, role := range roles {
		if err := e.start(ctx, role, settings); err != nil {
			return err
		}
	}
	return e.measure(ctx)
}

// everydayRiver runs a process with River's client. The producers run in the parent, as for all systems.
func everydayRiver(ctx context.Context, t *trial, perSecond int) error {
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	pace := riverPaces[t.tuning]
	if t.tuning == pollingPace {
		pace = riverPace{} // of the producer
	}
	producer, err := riverProducer(t.db, pace)
	if err != nil {
		return err
	}
	e := newEveryday(t, perSecond, pgxTransaction(func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := producer.InsertTx(ctx, tx, newRiverArgs(id), nil)
		return err
	}))
	if perSecond == 0 {
		e.settle = 0 // it is idle at once
	}
	if err := e.start(ctx, "river", riverSettings{DatabaseURL: t.url, Pace: t.tuning}); err != nil {
		return err
	}
	return e.measure(ctx)
}

// everydayFloor runs a process with the floor's relay and projection, and one with its worker.
func everydayFloor(ctx context.Context, t *trial, perSecond int) error {
	if err := migrateFloor(ctx, t); err != nil {
		return err
	}
	address, err := broker(ctx, t, false)
	if err != nil {
		return err
	}
	budget, err := time.ParseDuration(t.tuning)
	if err != nil {
		return err
	}
	e := newEveryday(t, perSecond, floorEvenTransaction)
	settings := serviceSettings{DatabaseURL: t.url, NATSURL: address, Budget: budget}
	if err := errors.Join(e.start(ctx, "floor-serve", settings), e.start(ctx, "floor-worker", settings)); err != nil {
		return err
	}
	return e.measure(ctx)
}

// everyday is a trial at an even rate.
type everyday struct {
	t         *trial
	perSecond int
	run       transaction
	length    time.Duration
	settle    time.Duration // before it
	children  []*child
	watch     *stopwatch // of the tasks that are counted
}

func newEveryday(t *trial, perSecond int, run transaction) *everyday {
	e := &everyday{t: t, perSecond: perSecond, run: run, length: t.duration()}
	if t.config.quick {
		e.length *= everydayQuick
	}
	if perSecond <= 1 {
		e.length *= 2
	}
	if perSecond == 0 {
		e.length *= 2
		e.settle = min(e.length, idleAfter)
	}
	tasks := 0
	if perSecond > 0 {
		tasks = max(1, int(e.length.Seconds()*float64(perSecond)))
	}
	e.watch = newStopwatch(tasks)
	t.costs = true
	return e
}

// idleAfter is the time after which the services are idle: the scheduler polls often for ten seconds after a task.
const idleAfter = 12 * time.Second

// everydayQuick is the length of a trial with -quick, in units of the other trials': CPU time is read in hundredths
// of a second.
const everydayQuick = 3

// start starts a child process, whose CPU counts.
func (e *everyday) start(ctx context.Context, role string, settings any) error {
	var first count
	c, err := startChild(ctx, role, settings, &first, e.watch)
	if err != nil {
		return err
	}
	e.t.atEnd(c.stop)
	e.children = append(e.children, c)
	return nil
}

// measure enqueues and measures the CPU of the children, PostgreSQL and NATS, after a warm-up, then the latency.
func (e *everyday) measure(ctx context.Context) error {
	t := e.t
	conns, release, err := connections(ctx, t, producers, e.run)
	if err != nil {
		return err
	}
	defer release()
	// The first tasks and statements are not counted. The counted tasks follow the warm-up without a pause.
	if err := awaitClosed(ctx, e.watch.warm.done); err != nil {
		return err
	}
	if err := e.offer(ctx, conns, len(e.watch.commits)/4, "warm", nil); err != nil {
		return err
	}
	if err := sleep(ctx, e.settle); err != nil {
		return err
	}
	begin := time.Now()
	before, err := e.read(ctx, conns)
	if err != nil {
		return err
	}
	if err := e.offer(ctx, conns, len(e.watch.commits), "", e.watch.commits); err != nil {
		return err
	}
	if err := sleep(ctx, e.length-time.Since(begin)); err != nil {
		return err
	}
	after, err := e.read(ctx, conns)
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	add := func(metric string, of func(everydayMeter) float64, per float64, unit string) {
		t.add(metric, (of(after)-of(before))/per, unit)
	}
	all := func(m everydayMeter) float64 { return m.postgres + m.broker + m.children }
	services := func(m everydayMeter) float64 { return all(m) - m.producers }
	add(coresMetric, all, seconds, "cores")
	add(servicesMetric, services, seconds, "cores")
	add("of PostgreSQL", func(m everydayMeter) float64 { return m.postgres }, seconds, "cores")
	add("of the producers' backends", func(m everydayMeter) float64 { return m.producers }, seconds, "cores")
	add("of NATS", func(m everydayMeter) float64 { return m.broker }, seconds, "cores")
	add("of services and workers", func(m everydayMeter) float64 { return m.children }, seconds, "cores")
	add(writesMetric, func(m everydayMeter) float64 { return m.xids }, seconds, "tx/s")
	if e.perSecond == 0 {
		return nil
	}
	tasks := float64(len(e.watch.commits))
	add(cpuOfTaskMetric, all, tasks/1e6, "µs")
	add(walPerTask, func(m everydayMeter) float64 { return m.wal }, tasks, "bytes")
	if err := e.awaitHandled(ctx); err != nil {
		return err
	}
	e.watch.add(t)
	return nil
}

// everydayMeter is a meter with the CPU seconds of the child processes and of the producers' backends. The backends'
// seconds are also part of meter.postgres.
type everydayMeter struct {
	meter
	children, producers float64
}

func (e *everyday) read(ctx context.Context, conns []*pgxpool.Conn) (m everydayMeter, err error) {
	for _, c := range e.children {
		m.children += processSeconds(c.command.Process.Pid)
	}
	if e.t.server.own != nil { // else they are processes of another machine
		for _, c := range conns {
			m.producers += processSeconds(int(c.Conn().PgConn().PID()))
		}
	}
	return m, m.meter.read(ctx, e.t)
}

// awaitHandled waits until every task has been handled. It fails if a child process has ended.
func (e *everyday) awaitHandled(ctx context.Context) error {
	return await(ctx, func() (bool, error) {
		for _, c := range e.children {
			if c.hasEnded() {
				return false, fmt.Errorf("child process (%s) has ended", c.role)
			}
		}
		return e.watch.counter.left.Load() <= 0, nil
	})
}

// offer enqueues tasks at an even rate. It stores the times of their commits, if commits is not nil.
func (e *everyday) offer(ctx context.Context, conns []*pgxpool.Conn, tasks int, prefix string, commits []atomic.Int64,
) error {
	begin := time.Now()
	return concurrently(producers, func(p int) error {
		for i := p; i < tasks; i += producers {
			due := begin.Add(time.Duration(i) * time.Second / time.Duration(e.perSecond))
			if err := sleep(ctx, time.Until(due)); err != nil {
				return err
			}
			if err := e.run(ctx, conns[p].Conn(), prefix+strconv.Itoa(i)); err != nil {
				return err
			}
			if commits != nil {
				commits[i].Store(time.Now().UnixNano())
			}
		}
		return nil
	})
}

// Metrics of an even rate.
const (
	// coresMetric is the CPU time in a second of all processes but the producers'.
	coresMetric = "CPU"
	// servicesMetric is that without the backends of PostgreSQL that execute the producers' transactions.
	servicesMetric  = "CPU without the producers' backends"
	cpuOfTaskMetric = "CPU of each task"
	writesMetric    = "write transactions"
)

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// millisecond is the work of an everyday handler.
func millisecond(ctx context.Context) error { return sleep(ctx, time.Millisecond) }
