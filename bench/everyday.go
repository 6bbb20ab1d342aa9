package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/riverqueue/river"

	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/reconciler"
	"github.com/taskledger/taskledger/workers/scheduler"
)

// everydayMeasures measure the CPU time of all processes except the producers' at rates far below the limit. A handler
// sleeps for a millisecond. At rate 0 the services are idle.
func everydayMeasures() []measure {
	var all []measure
	for _, perSecond := range []int{0, 1, 200, 500, 800} {
		name, title := fmt.Sprintf("everyday-%d", perSecond), fmt.Sprintf("CPU at %d tasks a second", perSecond)
		if perSecond == 0 {
			name, title = "idle", "CPU of idle services"
		}
		all = append(all, measure{
			name: name, title: title + ", handlers of 1 ms, producers not counted",
			contenders: []contender{
				{system: ours, run: func(ctx context.Context, t *trial) error {
					return everydayOurs(ctx, t, perSecond)
				}},
				{system: peerRiver, setting: "FetchCooldown and FetchPollInterval", tune: []string{"5ms, polls 5ms"},
					run: func(ctx context.Context, t *trial) error { return everydayRiver(ctx, t, perSecond) }},
			},
		})
	}
	return all
}

// everydayOurs has a process with the services of the command serve, and one with workers.
func everydayOurs(ctx context.Context, t *trial, perSecond int) error {
	c, err := newPipeline(ctx, t)
	if err != nil {
		return err
	}
	serve, err1 := c.start(ctx, "serve", false, 0)
	worker, err2 := c.start(ctx, "everyday-worker", false, 100)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	parts := map[string]*child{"services": serve, "worker": worker}
	return measureEveryday(ctx, t, perSecond, oursTransaction(kind), parts)
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
	var first count
	worker, err := startChild(ctx, "river", riverSettings{DatabaseURL: t.url, Pace: t.tuning}, &first)
	if err != nil {
		return err
	}
	t.atEnd(worker.stop)
	insert := pgxTransaction(func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := producer.InsertTx(ctx, tx, newRiverArgs(id), nil)
		return err
	})
	return measureEveryday(ctx, t, perSecond, insert, map[string]*child{"worker": worker})
}

// measureEveryday enqueues at an even rate and measures the CPU of the children, PostgreSQL and NATS, after a warm-up.
func measureEveryday(ctx context.Context, t *trial, perSecond int, run transaction, parts map[string]*child) error {
	t.costs = true
	length := t.duration()
	var tasks int
	if perSecond > 0 {
		tasks = max(1, int(length.Seconds()*float64(perSecond)))
	}
	var before, after meter
	var children [2]float64
	read := func(m *meter, sum *float64) error {
		for _, c := range parts {
			*sum += processSeconds(c.command.Process.Pid)
		}
		return m.read(ctx, t)
	}
	// The first tasks, statements and audits are not counted.
	if err := offer(ctx, t, tasks/4, perSecond, "warm", run); err != nil {
		return err
	}
	if err := sleep(ctx, length/4); err != nil {
		return err
	}
	begin := time.Now()
	if err := read(&before, &children[0]); err != nil {
		return err
	}
	if err := offer(ctx, t, tasks, perSecond, "task", run); err != nil {
		return err
	}
	if err := sleep(ctx, length-time.Since(begin)); err != nil {
		return err
	}
	if err := read(&after, &children[1]); err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	postgres, broker := after.postgres-before.postgres, after.broker-before.broker
	clients := children[1] - children[0]
	t.add(coresMetric, (postgres+broker+clients)/seconds, "cores")
	t.add("of PostgreSQL", postgres/seconds, "cores")
	t.add("of NATS", broker/seconds, "cores")
	t.add("of services and workers", clients/seconds, "cores")
	for name, c := range parts {
		if perSecond > 0 && name == "worker" {
			if err := awaitCount(ctx, tasks+tasks/4, c); err != nil {
				return err
			}
		}
	}
	return nil
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

// offer enqueues tasks at an even rate.
func offer(ctx context.Context, t *trial, tasks, perSecond int, prefix string, run transaction) error {
	if tasks == 0 {
		return nil
	}
	conns := make([]*pgxpool.Conn, producers)
	for i := range conns {
		var err error
		if conns[i], err = t.db.Acquire(ctx); err != nil {
			return err
		}
		defer conns[i].Release()
	}
	begin := time.Now()
	return concurrently(producers, func(p int) error {
		for i := p; i < tasks; i += producers {
			due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
			if err := sleep(ctx, time.Until(due)); err != nil {
				return err
			}
			if err := run(ctx, conns[p].Conn(), prefix+"-"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// millisecond is the work of an everyday handler.
func millisecond(ctx context.Context) error { return sleep(ctx, time.Millisecond) }

// newServe makes the services of the command serve.
func newServe(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, add func(int)) (func(context.Context) error, error) {
	relay, err1 := newRelay(s, db, nc, add)
	project, err2 := newProjector(s, db, nc, add)
	timers, err3 := scheduler.New(scheduler.Config{DB: db})
	schedules, err4 := periodic.New(periodic.Config{DB: db})
	lost, err5 := reconciler.New(reconciler.Config{DB: db, NATS: nc})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var running sync.WaitGroup
		for _, run := range []func(context.Context) error{relay, project, timers.Run, schedules.Run, lost.Run} {
			running.Go(func() { _ = run(ctx) })
		}
		running.Wait()
		return nil
	}, nil
}

func newEverydayWorker(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, add func(int),
) (func(context.Context) error, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc, Hooks: []workers.Hook{successes{add: add}}})
	if err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, _ *workers.Job, _ json.RawMessage) error { return millisecond(ctx) }
	return p.Run, workers.RegisterAtLeastOnce(p, kind, handler, &workers.KindConfig{Slots: s.Slots})
}

func runServe(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, newServe)
}

func runEverydayWorker(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, newEverydayWorker)
}

// riverSettings are the settings of a child process with River's client.
type riverSettings struct {
	DatabaseURL string `json:"database_url"`
	Pace        string `json:"pace"`
}

// riverSleep is a worker of everyday tasks.
type riverSleep struct {
	river.WorkerDefaults[riverArgs]
	add func(int)
}

func (w *riverSleep) Work(ctx context.Context, _ *river.Job[riverArgs]) error {
	defer w.add(1)
	return millisecond(ctx)
}

func runRiver(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	var s riverSettings
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return reportCounts(ctx, ready, func(add func(int)) (func(context.Context) error, error) {
		c, err := pgxpool.ParseConfig(s.DatabaseURL)
		if err != nil {
			return nil, err
		}
		c.MaxConns = 16
		db, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			return nil, err
		}
		client, err := newRiver(db, 100, riverPaces[s.Pace], &riverSleep{add: add})
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
