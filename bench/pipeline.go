package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// serviceSettings are the settings of a relay, projector or worker in a child process.
type serviceSettings struct {
	DatabaseURL string `json:"database_url"`
	NATSURL     string `json:"nats_url"`
	ExactlyOnce bool   `json:"exactly_once"` // guarantee of the worker's handler
	Slots       int    `json:"slots"`        // of the worker
	Replicas    int    `json:"replicas"`     // of the stream
	Subscribers int    `json:"subscribers"`  // of the feed, which want no event
	OtherKinds  int    `json:"other_kinds"`  // kinds of the worker without tasks
	// Budget is the time that the floor's relay lets events wait for others.
	Budget time.Duration `json:"budget"`
}

// count is a report of a child process: the number of messages published, or of tasks succeeded, at a time, and when
// tasks have started since the last report. Times are in nanoseconds since 1970.
type count struct {
	Count  int64       `json:"count"`
	At     int64       `json:"at"`
	Starts []taskStart `json:"starts,omitempty"`
}

// taskStart is the start of a task's handler.
type taskStart struct {
	ID string `json:"id"`
	At int64  `json:"at"`
}

// tally contains the counts of a child process.
type tally struct {
	total  atomic.Int64
	mu     sync.Mutex // guards starts
	starts []taskStart
}

func (t *tally) add(n int) { t.total.Add(int64(n)) }

// start records that the handler of a task starts.
func (t *tally) start(id string) {
	s := taskStart{id, time.Now().UnixNano()}
	t.mu.Lock()
	t.starts = append(t.starts, s)
	t.mu.Unlock()
}

// take returns the report since the last one.
func (t *tally) take() count {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := count{t.total.Load(), time.Now().UnixNano(), t.starts}
	t.starts = nil
	return c
}

// countEvery is the interval in which a child process reports its counts.
const countEvery = 20 * time.Millisecond

// service makes the Run method of a relay, projector or worker, which counts in a tally.
type service func(
	s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, counts *tally,
) (run func(context.Context) error, err error)

// runService runs a service until ctx is done, and reports its counts with ready, once in each interval.
func runService(ctx context.Context, raw json.RawMessage, connections int32, ready func(any), interval time.Duration,
	build service) error {
	var s serviceSettings
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	c, err := pgxpool.ParseConfig(s.DatabaseURL)
	if err != nil {
		return err
	}
	c.MaxConns = connections + 2*int32(s.Subscribers)
	db, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := outbox.Connect(s.NATSURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	return reportCounts(ctx, ready, interval, func(counts *tally) (func(context.Context) error, error) {
		return build(s, db, nc, counts)
	})
}

// reportCounts runs what build makes until ctx is done, and reports its counts with ready, once in each interval.
func reportCounts(ctx context.Context, ready func(any), interval time.Duration,
	build func(counts *tally) (run func(context.Context) error, err error)) error {
	var counts tally
	run, err := build(&counts)
	if err != nil {
		return err
	}
	ready(counts.take())
	ctx, cancel := context.WithCancel(ctx) // a service that returns by itself has failed
	stop := background(ctx, func(ctx context.Context) error {
		defer cancel()
		return run(ctx)
	})
	for reported := int64(0); sleep(ctx, interval) == nil; {
		if now := counts.take(); now.Count != reported || len(now.Starts) > 0 {
			ready(now)
			reported = now.Count
		}
	}
	return stop()
}

func runRelay(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 8, ready, countEvery, newRelay)
}

func runProjector(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 4, ready, countEvery, newProjector)
}

func runWorker(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 64, ready, countEvery, newWorker)
}

// newRelay makes a relay, and a dispatcher that reads the feed for it.
func newRelay(_ serviceSettings, db *pgxpool.Pool, nc *nats.Conn, counts *tally) (func(context.Context) error, error) {
	r, err1 := outbox.New(outbox.Config{
		DB: db, NATS: nc, Stream: streamSettings, Hooks: []outbox.Hook{publishedHook(counts.add)},
	})
	give, err2 := dispatcher.New(dispatcher.Config{DB: db, NATS: nc})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return together(r.Run, give.Run), nil
}

func newProjector(_ serviceSettings, db *pgxpool.Pool, _ *nats.Conn, _ *tally) (func(context.Context) error, error) {
	p, err := projector.New(projector.Config{DB: db})
	if err != nil {
		return nil, err
	}
	return p.Run, nil
}

func newWorker(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, counts *tally) (func(context.Context) error, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc})
	if err != nil {
		return nil, err
	}
	register := noopAtLeastOnce(s.Slots)
	if s.ExactlyOnce {
		register = insertExactlyOnce(s.Slots)
	}
	run := func(ctx context.Context) error {
		go countSuccesses(ctx, p, counts.add)
		return p.Run(ctx)
	}
	return run, register(p)
}

// pipeline is a ledger whose relay, projector and workers are child processes.
type pipeline struct {
	t    *trial
	nats string
}

// newPipeline migrates the database and starts a broker.
func newPipeline(ctx context.Context, t *trial) (*pipeline, error) {
	if err := migrate(ctx, t); err != nil {
		return nil, err
	}
	address, err := broker(ctx, t, false)
	return &pipeline{t, address}, err
}

// start starts a child process. The caller may stop it; the end of the trial does.
func (c *pipeline) start(ctx context.Context, role string, exactlyOnce bool, slots int) (*child, error) {
	var first count
	settings := serviceSettings{DatabaseURL: c.t.url, NATSURL: c.nats, ExactlyOnce: exactlyOnce, Slots: slots}
	a, err := startChild(ctx, role, settings, &first, nil)
	if err != nil {
		return nil, err
	}
	c.t.atEnd(a.stop)
	return a, nil
}

// awaitCount waits until the sum of the children's counts is n.
func awaitCount(ctx context.Context, n int, children ...*child) error {
	return await(ctx, func() (bool, error) {
		var sum int64
		for _, a := range children {
			if a.hasEnded() {
				return false, fmt.Errorf("child process (%s) has ended", a.role)
			}
			sum += a.count.Load()
		}
		return sum >= int64(n), nil
	})
}

// awaitRelayed waits until the relay has delivered every event. It fails with the reason of a relay that cannot.
func (c *pipeline) awaitRelayed(ctx context.Context) error {
	return await(ctx, func() (empty bool, err error) {
		var note string
		if err = c.t.db.QueryRow(ctx, statement("relayed")).Scan(&empty, &note); err == nil && note != "" {
			err = fmt.Errorf("the relay is blocked: %s", note)
		}
		return empty, err
	})
}

// awaitSettled waits until relay and projector have audited the events that they delivered, and the projector has
// listed the tasks that are unfinished, because both take CPU time. It enqueues a task before each poll: idle readers
// do not write their cursors.
func (c *pipeline) awaitSettled(ctx context.Context) error {
	var newest ledger.Position
	if err := c.t.db.QueryRow(ctx, statement("newest")).Scan(&newest); err != nil {
		return err
	}
	for i := 0; ; i++ {
		other := ledger.Key{Kind: "bench.history", BizID: ledger.BizID(fmt.Sprintf("poke-%d", i))}
		if _, err := ledger.Enqueue(ctx, c.t.db, other, args, nil); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		var left int
		var isListed bool
		err := errors.Join(c.t.db.QueryRow(ctx, statement("unaudited")).Scan(&left),
			c.t.db.QueryRow(ctx, statement("listed"), int64(newest)).Scan(&isListed))
		if err != nil {
			return err
		}
		if left < 1000 && isListed {
			return nil
		}
	}
}

// awaitProjected waits until the projector has applied every event.
func (c *pipeline) awaitProjected(ctx context.Context) error {
	return awaitProjected(ctx, c.t.db)
}

// awaitProjected waits until the projector has applied every event. It begins to read the lag when the newest event is
// applied: with a backlog, a reading costs milliseconds.
func awaitProjected(ctx context.Context, db *pgxpool.Pool) error {
	var newest ledger.Position
	if err := db.QueryRow(ctx, statement("newest")).Scan(&newest); err != nil || newest == 0 {
		return err
	}
	// projector.WaitFor finally polls every 50 ms, which would count as our time.
	if err := await(ctx, func() (bool, error) {
		passed, _, err := feed.Passed(ctx, db, feed.ProjectorReader, newest)
		return passed, err
	}); err != nil {
		return err
	}
	return await(ctx, func() (bool, error) {
		lag, err := projection.ReadLag(ctx, db)
		return lag.Events == 0, err
	})
}

// memory returns the maximum resident memory of the process in MB, or 0 on systems without /proc.
func (a *child) memory() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.command.Process.Pid))
	return float64(kilobytes(string(text), "VmHWM:")) / 1024
}

// addMemory adds the memory of a child process, unless it is unknown.
func addMemory(t *trial, a *child) {
	if mb := a.memory(); mb > 0 {
		t.add(a.role+" memory", mb, "MB")
	}
}
