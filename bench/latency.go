package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// subscriberMeasure measures from the return of the commit of an enqueue to a plain NATS subscriber, with relay and
// workers in one process.
func subscriberMeasure() measure {
	return measure{
		name: "to-subscriber", title: "enqueue commit to a NATS subscriber, 500 a second offered", notQuick: true,
		contenders: []contender{{system: ours, run: func(ctx context.Context, t *trial) error {
			return latencyToSubscriber(ctx, t, 500)
		}}},
	}
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

// arrive records the first arrival of a task, in nanoseconds since 1970.
func (w *stopwatch) arrive(id string, at int64) {
	if strings.HasPrefix(id, warmUpPrefix) {
		w.warm.add(1)
		return
	}
	i, err := strconv.Atoi(id)
	if err == nil && i >= 0 && i < len(w.starts) && w.starts[i].CompareAndSwap(0, at) {
		w.counter.add(1)
	}
}

// add adds the percentiles. The latency of a handler that starts before the commit returns is 0.
func (w *stopwatch) add(t *trial) {
	latencies := make([]int64, len(w.starts))
	for i := range latencies {
		latencies[i] = max(0, w.starts[i].Load()-w.commits[i].Load())
	}
	slices.Sort(latencies)
	for _, p := range []int{50, 95, 99, 100} {
		name := fmt.Sprintf("p%d", p)
		if p == 100 {
			name = "max"
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

// latencyToSubscriber runs relay, projector and workers with their defaults, and a plain NATS subscriber to the stream.
func latencyToSubscriber(ctx context.Context, t *trial, perSecond int) error {
	n, err := newNode(ctx, t, false)
	if err != nil {
		return err
	}
	if err := errors.Join(n.relay(ctx, nil), n.project(ctx), n.work(ctx, t.db, noopAtLeastOnce(100), nil)); err != nil {
		return err
	}
	w := newStopwatch(max(1, int(t.duration().Seconds()*float64(perSecond))))
	subject := stream.None.Pattern("*", string(ledger.EventEnqueued), string(kind.Name()))
	subscription, err := n.nc.Subscribe(subject, func(m *nats.Msg) {
		if event, err := stream.Decode(m.Subject, m.Header, m.Data); err == nil {
			w.arrive(string(event.BizID), time.Now().UnixNano())
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	if err := n.nc.FlushTimeout(10 * time.Second); err != nil {
		return err
	}
	if err := w.offer(ctx, t, perSecond, oursTransaction(kind)); err != nil {
		return err
	}
	if err := awaitClosed(ctx, w.counter.done); err != nil {
		return err
	}
	w.add(t)
	return nil
}
