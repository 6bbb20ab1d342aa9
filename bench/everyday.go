package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/riverqueue/river"

	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/reconciler"
	"github.com/taskledger/taskledger/workers/scheduler"
)

// everydayMeasures measure the CPU time of all processes except the producers' at rates far below the limit, and in the
// same run the latency from the return of a commit to the start of the handler. A handler sleeps for a millisecond. At
// rate 0 the services are idle.
func everydayMeasures() []measure {
	var all []measure
	for _, perSecond := range []int{0, 1, 200, 500, 800, 2000} {
		name := fmt.Sprintf("everyday-%d", perSecond)
		title := fmt.Sprintf("CPU and latency at %d tasks a second", perSecond)
		if perSecond == 0 {
			name, title = "idle", "CPU of idle services"
		}
		m := measure{
			name: name, title: title + ", handlers of 1 ms, producers not counted", onceQuick: true,
			notQuick: perSecond == 800,
			contenders: []contender{
				{system: ours, run: func(ctx context.Context, t *trial) error {
					return everydayOurs(ctx, t, perSecond)
				}},
				{system: peerRiver, setting: "FetchCooldown and FetchPollInterval", tune: []string{everydayPace},
					run: func(ctx context.Context, t *trial) error { return everydayRiver(ctx, t, perSecond) }},
			},
		}
		if perSecond == 200 || perSecond == 500 {
			m.contenders = append(m.contenders, contender{
				system: floorPipeline, setting: "relay's pause", tune: []string{"5ms"},
				run: func(ctx context.Context, t *trial) error { return everydayFloor(ctx, t, perSecond) },
			})
		}
		all = append(all, m)
	}
	return all
}

// everydayOurs has a process with the services of the command serve, and one with workers.
func everydayOurs(ctx context.Context, t *trial, perSecond int) error {
	c, err := newPipeline(ctx, t)
	if err != nil {
		return err
	}
	e := newEveryday(t, perSecond, oursTransaction(kind))
	settings := serviceSettings{DatabaseURL: t.url, NATSURL: c.nats, Slots: 100}
	if err := errors.Join(e.start(ctx, "serve", settings), e.start(ctx, "everyday-worker", settings)); err != nil {
		return err
	}
	return e.measure(ctx)
}

// everydayRiver has a process with River's client. Inserts of the producers notify it as in its own process.
func everydayRiver(ctx context.Context, t *trial, perSecond int) error {
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	producer, err := riverProducer(t.db)
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

// everydayFloor has a process with relay and projection of the floor, and one with its worker.
func everydayFloor(ctx context.Context, t *trial, perSecond int) error {
	if err := migrateFloor(ctx, t); err != nil {
		return err
	}
	address, err := broker(ctx, t, false)
	if err != nil {
		return err
	}
	e := newEveryday(t, perSecond, floorTransaction)
	settings := serviceSettings{DatabaseURL: t.url, NATSURL: address}
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
	settle    time.Duration // before it; idle services become idle ten seconds after the last task
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
	e.settle = e.length / 4
	if perSecond == 0 {
		e.length *= 2
		e.settle = e.length
	}
	tasks := 0
	if perSecond > 0 {
		tasks = max(1, int(e.length.Seconds()*float64(perSecond)))
	}
	e.watch = newStopwatch(tasks)
	t.costs = true
	return e
}

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
	// The first tasks, statements and audits are not counted.
	if err := awaitClosed(ctx, e.watch.warm.done); err != nil {
		return err
	}
	if err := e.offer(ctx, conns, len(e.watch.commits)/4, "warm", nil); err != nil {
		return err
	}
	if err := sleep(ctx, e.settle); err != nil {
		return err
	}
	var before, after meter
	var clients [2]float64
	read := func(m *meter, sum *float64) error {
		for _, c := range e.children {
			*sum += processSeconds(c.command.Process.Pid)
		}
		return m.read(ctx, t)
	}
	begin := time.Now()
	if err := read(&before, &clients[0]); err != nil {
		return err
	}
	if err := e.offer(ctx, conns, len(e.watch.commits), "", e.watch.commits); err != nil {
		return err
	}
	if err := sleep(ctx, e.length-time.Since(begin)); err != nil {
		return err
	}
	if err := read(&after, &clients[1]); err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	postgres, broker := after.postgres-before.postgres, after.broker-before.broker
	all := postgres + broker + clients[1] - clients[0]
	t.add(coresMetric, all/seconds, "cores")
	t.add("of PostgreSQL", postgres/seconds, "cores")
	t.add("of NATS", broker/seconds, "cores")
	t.add("of services and workers", (clients[1]-clients[0])/seconds, "cores")
	if e.perSecond == 0 {
		return nil
	}
	t.add("CPU of each task", all/float64(len(e.watch.commits))*1e6, "µs")
	if err := e.awaitHandled(ctx); err != nil {
		return err
	}
	e.watch.add(t)
	return nil
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

// coresMetric is the CPU time of all processes in a second.
const coresMetric = "CPU"

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

// newServe makes the services of the command serve.
func newServe(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, _ *tally) (func(context.Context) error, error) {
	found := feed.NewFindings()
	relay, err1 := outbox.New(outbox.Config{DB: db, NATS: nc, Stream: streamSettings, Findings: found})
	project, err2 := projector.New(projector.Config{DB: db, Findings: found})
	timers, err3 := scheduler.New(scheduler.Config{DB: db})
	schedules, err4 := periodic.New(periodic.Config{DB: db})
	lost, err5 := reconciler.New(reconciler.Config{DB: db, NATS: nc})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var running sync.WaitGroup
		for _, run := range []func(context.Context) error{relay.Run, project.Run, timers.Run, schedules.Run, lost.Run} {
			running.Go(func() { _ = run(ctx) })
		}
		running.Wait()
		return nil
	}, nil
}

func newEverydayWorker(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, starts *tally,
) (func(context.Context) error, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc})
	if err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, job *workers.Job, _ json.RawMessage) error {
		starts.start(string(job.BizID))
		return millisecond(ctx)
	}
	return p.Run, workers.RegisterAtLeastOnce(p, kind, handler, &workers.KindConfig{Slots: s.Slots})
}

func runServe(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newServe)
}

func runEverydayWorker(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newEverydayWorker)
}

// everydayReports is the interval in which these child processes report: their CPU counts.
const everydayReports = 500 * time.Millisecond

func newFloorServe(_ serviceSettings, db *pgxpool.Pool, nc *nats.Conn, _ *tally) (func(context.Context) error, error) {
	f := &floor{db: db, nc: nc, pause: 5 * time.Millisecond}
	if err := f.ensureStream(context.Background()); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var running sync.WaitGroup
		for _, run := range []func(context.Context) error{f.relay, f.project} {
			running.Go(func() { _ = run(ctx) })
		}
		running.Wait()
		return nil
	}, nil
}

func newFloorWorker(_ serviceSettings, db *pgxpool.Pool, nc *nats.Conn, starts *tally,
) (func(context.Context) error, error) {
	f := &floor{db: db, nc: nc, handle: func(ctx context.Context, bizID string) {
		starts.start(bizID)
		_ = millisecond(ctx)
	}}
	return func(ctx context.Context) error { _ = f.work(ctx); return nil }, nil
}

func runFloorServe(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newFloorServe)
}

func runFloorWorker(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newFloorWorker)
}

// riverSettings are the settings of a child process with River's client.
type riverSettings struct {
	DatabaseURL string `json:"database_url"`
	Pace        string `json:"pace"`
}

// riverSleep is a worker of everyday tasks.
type riverSleep struct {
	river.WorkerDefaults[riverArgs]
	starts *tally
}

func (w *riverSleep) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	w.starts.start(job.Args.BizID)
	return millisecond(ctx)
}

func runRiver(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	var s riverSettings
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return reportCounts(ctx, ready, everydayReports, func(starts *tally) (func(context.Context) error, error) {
		c, err := pgxpool.ParseConfig(s.DatabaseURL)
		if err != nil {
			return nil, err
		}
		c.MaxConns = 16
		db, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			return nil, err
		}
		client, err := newRiver(db, 100, riverPaces[s.Pace], &riverSleep{starts: starts})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			defer db.Close()
			if err := client.Start(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			<-ctx.Done()
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			return client.StopAndCancel(stopping)
		}, nil
	})
}
