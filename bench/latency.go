package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/riverqueue/river"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// latencyMeasures measure from the return of the commit of an enqueue to the start of the handler.
func latencyMeasures() []measure {
	var all []measure
	for _, perSecond := range []int{1, 200, 500, 2000} {
		all = append(all, measure{
			name:  fmt.Sprintf("latency-%d", perSecond),
			title: fmt.Sprintf("enqueue commit to handler start, %d a second offered", perSecond),
			contenders: []contender{
				{system: ours, run: func(ctx context.Context, t *trial) error {
					return latencyOurs(ctx, t, perSecond)
				}},
				{system: peerRiver, setting: "FetchCooldown and FetchPollInterval",
					tune: []string{benchPace, "1ms, polls 1ms", "5ms, polls 5ms"},
					run:  func(ctx context.Context, t *trial) error { return latencyRiver(ctx, t, perSecond) }},
			},
		})
	}
	return all
}

// stopwatch has two times of each task: its commit, and the event after it.
type stopwatch struct {
	commits, starts []atomic.Int64
	counter         *counter
	warm            *counter // of the tasks of the warm-up
}

func newStopwatch(n int) *stopwatch {
	return &stopwatch{make([]atomic.Int64, n), make([]atomic.Int64, n), newCounter(n), newCounter(producers)}
}

// start records the first arrival of the i-th task.
func (w *stopwatch) start(i int) {
	if i >= 0 && i < len(w.starts) && w.starts[i].CompareAndSwap(0, time.Now().UnixNano()) {
		w.counter.add(1)
	}
}

// arrive is start with the id of the task.
func (w *stopwatch) arrive(id string) {
	if strings.HasPrefix(id, warmUpPrefix) {
		w.warm.add(1)
	} else if i, err := strconv.Atoi(id); err == nil {
		w.start(i)
	}
}

// add adds the percentiles. The latency of a handler that starts before the commit returns is 0.
func (w *stopwatch) add(t *trial, prefix string) {
	latencies := make([]int64, len(w.starts))
	for i := range latencies {
		latencies[i] = max(0, w.starts[i].Load()-w.commits[i].Load())
	}
	slices.Sort(latencies)
	for _, p := range []int{50, 95, 99, 100} {
		name := fmt.Sprintf("%sp%d", prefix, p)
		if p == 100 {
			name = prefix + "max"
		}
		t.add(name, float64(latencies[(len(latencies)-1)*p/100])/1e6, "ms")
	}
}

// producers is the number of connections that enqueue, so that one slow commit does not delay others.
const producers = 8

// offer enqueues all tasks at an even rate. It does not wait for their handlers.
func (w *stopwatch) offer(ctx context.Context, t *trial, perSecond int, run transaction) error {
	conns, release, err := connections(ctx, t, producers, run)
	if err != nil {
		return err
	}
	defer release()
	if err := awaitClosed(ctx, w.warm.done); err != nil {
		return err
	}
	begin := time.Now()
	return concurrently(producers, func(p int) error {
		for i := p; i < len(w.commits); i += producers {
			due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Until(due)):
			}
			if err := run(ctx, conns[p].Conn(), strconv.Itoa(i)); err != nil {
				return err
			}
			w.commits[i].Store(time.Now().UnixNano())
		}
		return nil
	})
}

// latencyOurs runs relay, projector and workers with their defaults, and a plain NATS subscriber to the
// stream.
func latencyOurs(ctx context.Context, t *trial, perSecond int) error {
	n, err := newNode(ctx, t, false)
	if err != nil {
		return err
	}
	tasks := max(1, int(t.duration().Seconds()*float64(perSecond)))
	handlers, subscriber := newStopwatch(tasks), newStopwatch(tasks)
	if err := n.relay(ctx, nil); err != nil {
		return err
	}
	if err := n.project(ctx); err != nil {
		return err
	}
	err = n.work(ctx, t.db, func(p *workers.Pool) error {
		return workers.RegisterAtLeastOnce(p, kind, func(_ context.Context, job *workers.Job, _ json.RawMessage) error {
			handlers.arrive(string(job.BizID))
			return nil
		}, nil)
	})
	if err != nil {
		return err
	}
	subject := stream.Subjects(ledger.EventEnqueued, kind.Name(), ledger.AllShards)[0]
	subscription, err := n.nc.Subscribe(subject, func(m *nats.Msg) {
		if event, err := stream.Decode(m.Subject, m.Header, m.Data); err == nil {
			subscriber.arrive(string(event.BizID))
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	if err := n.nc.FlushTimeout(10 * time.Second); err != nil {
		return err
	}
	if err := handlers.offer(ctx, t, perSecond, oursTransaction(kind)); err != nil {
		return err
	}
	if err := awaitClosed(ctx, handlers.counter.done); err != nil {
		return err
	}
	if err := awaitClosed(ctx, subscriber.counter.done); err != nil {
		return err
	}
	handlers.add(t, "")
	subscriber.commits = handlers.commits
	subscriber.add(t, "to subscriber ")
	return nil
}

// riverTimed reports each start of its handler.
type riverTimed struct {
	river.WorkerDefaults[riverArgs]
	started func(id string)
}

func (w *riverTimed) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.started(job.Args.BizID)
	return nil
}

// latencyRiver inserts with the client that works the jobs. Its notifications are limited by the fetch
// cooldown, and not by the longer default.
func latencyRiver(ctx context.Context, t *trial, perSecond int) error {
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	w := newStopwatch(max(1, int(t.duration().Seconds()*float64(perSecond))))
	client, err := newRiver(t.db, 100, riverPaces[t.tuning], &riverTimed{started: w.arrive})
	if err != nil {
		return err
	}
	if err := startRiver(ctx, t, client); err != nil {
		return err
	}
	err = w.offer(ctx, t, perSecond, pgxTransaction(func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := client.InsertTx(ctx, tx, newRiverArgs(id), nil)
		return err
	}))
	if err != nil {
		return err
	}
	if err := awaitClosed(ctx, w.counter.done); err != nil {
		return err
	}
	w.add(t, "")
	return nil
}
