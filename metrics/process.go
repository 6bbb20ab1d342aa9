package metrics

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/taskledger/taskledger/workers"
)

// Process collects the metrics of one process: its connections, its workers, and how long their tasks wait and their
// attempts run. Pass it to taskledger.Open as Options.Metrics; or pass [Process.Workers] to [workers.Config].Hooks, and
// add the rest. It is safe for concurrent use.
type Process struct {
	waiting, running *prometheus.HistogramVec

	mu        sync.Mutex // guards the fields below
	labels    labels
	databases []*pgxpool.Pool
	conns     []*nats.Conn
	pools     []*workers.Pool
}

// NewProcess returns a collector of a process without connections and workers.
func NewProcess() *Process {
	return &Process{waiting: workerWaiting.vec(), running: workerRan.vec(), labels: make(labels)}
}

// AddDatabase adds a pool of connections. Its metrics are the sums of all pools.
func (p *Process) AddDatabase(db *pgxpool.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.databases = append(p.databases, db)
}

// AddNATS adds a connection to NATS. The process is connected if all of its connections are.
func (p *Process) AddNATS(nc *nats.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, nc)
}

// AddWorkers adds a pool of handlers. Its attempts are collected if [Process.Workers] is one of its hooks.
func (p *Process) AddWorkers(pool *workers.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pools = append(p.pools, pool)
}

// Workers returns a hook for [workers.Config], which collects how long tasks wait and attempts run.
func (p *Process) Workers() workers.Hook { return workers.Hook{AfterAttempt: p.afterAttempt} }

func (p *Process) afterAttempt(_ context.Context, job *workers.Job, end workers.AttemptEnd) {
	p.mu.Lock()
	kind := p.labels.of(job.Kind)
	p.mu.Unlock()
	p.running.WithLabelValues(kind).Observe(end.Duration.Seconds())
	if end.Waited > 0 {
		p.waiting.WithLabelValues(kind).Observe(end.Waited.Seconds())
	}
}

// Describe implements [prometheus.Collector].
func (p *Process) Describe(to chan<- *prometheus.Desc) {
	p.waiting.Describe(to)
	p.running.Describe(to)
	for _, m := range []*metric{
		connections, maxConnections, acquires, acquireWaits, acquireWaitSeconds, natsConnected, natsReconnects,
		workerSlots, workerRunning, workerOverdue, workerInFlight, workerAttempts,
	} {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (p *Process) Collect(to chan<- prometheus.Metric) {
	p.waiting.Collect(to)
	p.running.Collect(to)
	p.mu.Lock()
	databases, conns, pools := slices.Clone(p.databases), slices.Clone(p.conns), slices.Clone(p.pools)
	p.mu.Unlock()
	var v values
	v.databases(databases)
	v.conns(conns)
	v.workers(pools)
	for _, m := range v {
		to <- m
	}
}

// databases adds the sums of the use of pools of connections.
func (v *values) databases(all []*pgxpool.Pool) {
	if len(all) == 0 {
		return
	}
	var acquired, idle, constructing, limit, taken, waits int64
	var waited float64
	for _, db := range all {
		s := db.Stat()
		acquired += int64(s.AcquiredConns())
		idle += int64(s.IdleConns())
		constructing += int64(s.ConstructingConns())
		limit += int64(s.MaxConns())
		taken += s.AcquireCount()
		waits += s.EmptyAcquireCount()
		waited += s.EmptyAcquireWaitTime().Seconds()
	}
	v.number(connections, int(acquired), "acquired")
	v.number(connections, int(idle), "idle")
	v.number(connections, int(constructing), "constructing")
	v.number(maxConnections, int(limit))
	v.number(acquires, int(taken))
	v.number(acquireWaits, int(waits))
	v.add(acquireWaitSeconds, waited)
}

// conns adds the state of connections to NATS.
func (v *values) conns(all []*nats.Conn) {
	if len(all) == 0 {
		return
	}
	reconnects := uint64(0)
	for _, nc := range all {
		reconnects += nc.Stats().Reconnects
	}
	v.bool(natsConnected, !slices.ContainsFunc(all, func(nc *nats.Conn) bool { return !nc.IsConnected() }))
	v.number(natsReconnects, int(reconnects))
}

// workers adds the states of the kinds of pools. A kind in several pools counts once, as a sum.
func (v *values) workers(all []*workers.Pool) {
	sums, names := make(map[string]*workers.KindStatus), make(labels)
	for _, pool := range all {
		for _, k := range pool.Status().Kinds {
			name := names.of(k.Kind)
			sum := sums[name]
			if sum == nil {
				sum = &workers.KindStatus{Attempts: make(map[workers.Outcome]int64)}
				sums[name] = sum
			}
			sum.Slots += k.Slots
			sum.Running += k.Running
			sum.Overdue += k.Overdue
			sum.InFlight += k.InFlight
			for outcome, n := range k.Attempts {
				sum.Attempts[outcome] += n
			}
		}
	}
	for kind, k := range sums {
		v.number(workerSlots, k.Slots, kind)
		v.number(workerRunning, k.Running, kind)
		v.number(workerOverdue, k.Overdue, kind)
		v.number(workerInFlight, k.InFlight, kind)
		for outcome, n := range k.Attempts {
			v.number(workerAttempts, int(n), kind, string(outcome))
		}
	}
}
