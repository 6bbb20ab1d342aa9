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

// latencyMeasures: from the return of the commit that enqueued to the start of the handler.
func latencyMeasures() []measure {
	var all []measure
	for _, perSecond := range []int{200, 500, 2000} {
		all = append(all, measure{
			name:  fmt.Sprintf("latency-%d", perSecond),
			title: fmt.Sprintf("enqueue commit to handler start, %d a second offered", perSecond),
			contenders: []contender{
				{system: ours, run: func(ctx context.Context, t *trial) error { return latencyOurs(ctx, t, perSecond) }},
				{system: peerRiver, setting: "FetchCooldown and FetchPollInterval", tune: []string{benchPace, "1ms, polls 1ms", "5ms, polls 5ms"},
					run: func(ctx context.Context, t *trial) error { return latencyRiver(ctx, t, perSecond) }},
			},
		})
	}
	return all
}

// stopwatch holds two moments of each task: that of its commit and that of what is waited for.
type stopwatch struct {
	committed, started []atomic.Int64
	counter            *counter
	warm               *counter // of the tasks that only warm up
}

func newStopwatch(n int) *stopwatch {
	return &stopwatch{make([]atomic.Int64, n), make([]atomic.Int64, n), newCounter(n), newCounter(producers)}
}

// start notes that the i-th task has arrived, the first time.
func (w *stopwatch) start(i int) {
	if i >= 0 && i < len(w.started) && w.started[i].CompareAndSwap(0, time.Now().UnixNano()) {
		w.counter.add(1)
	}
}

// arrived is start by the task's name.
func (w *stopwatch) arrived(id string) {
	if strings.HasPrefix(id, warmUp) {
		w.warm.add(1)
	} else if i, err := strconv.Atoi(id); err == nil {
		w.start(i)
	}
}

// add reports the percentiles. A handler that starts before the producer has heard of its own
// commit has waited for nothing.
func (w *stopwatch) add(t *trial, prefix string) {
	took := make([]int64, len(w.started))
	for i := range took {
		took[i] = max(0, w.started[i].Load()-w.committed[i].Load())
	}
	slices.Sort(took)
	for _, p := range []int{50, 95, 99, 100} {
		name := fmt.Sprintf("%sp%d", prefix, p)
		if p == 100 {
			name = prefix + "max"
		}
		t.add(name, float64(took[(len(took)-1)*p/100])/1e6, "ms")
	}
}

// producers is how many connections offer the load, so that one slow commit delays no other.
const producers = 8

// offer enqueues n tasks at an even rate, whatever becomes of them.
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
		for i := p; i < len(w.committed); i += producers {
			due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Until(due)):
			}
			if err := run(ctx, conns[p].Conn(), strconv.Itoa(i)); err != nil {
				return err
			}
			w.committed[i].Store(time.Now().UnixNano())
		}
		return nil
	})
}

// latencyOurs runs relay, projector and workers with their defaults, and a plain subscriber to
// the stream beside them.
func latencyOurs(ctx context.Context, t *trial, perSecond int) error {
	n, err := newNode(ctx, t, false)
	if err != nil {
		return err
	}
	tasks := max(1, int(t.lasts().Seconds()*float64(perSecond)))
	handlers, subscriber := newStopwatch(tasks), newStopwatch(tasks)
	if err := n.relay(ctx, nil); err != nil {
		return err
	}
	if err := n.project(ctx); err != nil {
		return err
	}
	err = n.work(ctx, t.db, func(p *workers.Pool) error {
		return workers.RegisterAtLeastOnce(p, kind, func(_ context.Context, job *workers.Job, _ json.RawMessage) error {
			handlers.arrived(string(job.BizID))
			return nil
		}, nil)
	})
	if err != nil {
		return err
	}
	subscription, err := n.nc.Subscribe(stream.Subjects(ledger.EventEnqueued, kind.Name(), ledger.AllShards)[0], func(m *nats.Msg) {
		if event, err := stream.Decode(m.Subject, m.Header, m.Data); err == nil {
			subscriber.arrived(string(event.BizID))
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	if err := n.nc.FlushTimeout(10 * time.Second); err != nil {
		return err
	}
	if err := handlers.offer(ctx, t, perSecond, ofOurs(kind)); err != nil {
		return err
	}
	if err := awaitClosed(ctx, handlers.counter.done); err != nil {
		return err
	}
	if err := awaitClosed(ctx, subscriber.counter.done); err != nil {
		return err
	}
	handlers.add(t, "")
	subscriber.committed = handlers.committed
	subscriber.add(t, "to subscriber ")
	return nil
}

// riverTimed notes when it starts.
type riverTimed struct {
	river.WorkerDefaults[riverArgs]
	started func(id string)
}

func (w *riverTimed) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.started(job.Args.BizID)
	return nil
}

// latencyRiver inserts with the client that works, so that the limit on its notifications is the
// fetch cooldown and not the longer default.
func latencyRiver(ctx context.Context, t *trial, perSecond int) error {
	if err := migrateRiver(ctx, t); err != nil {
		return err
	}
	w := newStopwatch(max(1, int(t.lasts().Seconds()*float64(perSecond))))
	client, err := newRiver(t.db, 100, riverPaces[t.tuning], &riverTimed{started: w.arrived})
	if err != nil {
		return err
	}
	if err := startRiver(ctx, t, client); err != nil {
		return err
	}
	err = w.offer(ctx, t, perSecond, inTx(func(ctx context.Context, tx pgx.Tx, id string) error {
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
