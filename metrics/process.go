package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/taskledger/taskledger/workers"
)

// collector reads values of this process at each scrape.
type collector struct {
	describes []*metric
	collect   func(*values)
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.describes {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	var v values
	c.collect(&v)
	for _, m := range v {
		to <- m
	}
}

// NewDatabase returns a collector of the use of a pool of connections.
func NewDatabase(pool *pgxpool.Pool) prometheus.Collector {
	return collector{
		describes: []*metric{connections, maxConnections, acquires, acquireWaits, acquireWaitSeconds},
		collect: func(v *values) {
			s := pool.Stat()
			v.number(connections, int(s.AcquiredConns()), "acquired")
			v.number(connections, int(s.IdleConns()), "idle")
			v.number(connections, int(s.ConstructingConns()), "constructing")
			v.number(maxConnections, int(s.MaxConns()))
			v.number(acquires, int(s.AcquireCount()))
			v.number(acquireWaits, int(s.EmptyAcquireCount()))
			v.seconds(acquireWaitSeconds, s.EmptyAcquireWaitTime())
		},
	}
}

// NewNATS returns a collector of the state of a connection.
func NewNATS(nc *nats.Conn) prometheus.Collector {
	return collector{
		describes: []*metric{natsConnected, natsReconnects},
		collect: func(v *values) {
			v.bool(natsConnected, nc.IsConnected())
			v.number(natsReconnects, int(nc.Stats().Reconnects))
		},
	}
}

// NewWorkers returns a collector of a pool of handlers.
func NewWorkers(pool *workers.Pool) prometheus.Collector {
	return collector{
		describes: []*metric{
			workerSlots, workerRunning, workerOverdue, workerInFlight, workerAttempts,
		},
		collect: func(v *values) {
			var sums kindSums
			for _, k := range pool.Status().Kinds {
				sums.add(k)
			}
			for _, k := range sums.kinds {
				kind := string(k.Kind)
				v.number(workerSlots, k.Slots, kind)
				v.number(workerRunning, k.Running, kind)
				v.number(workerOverdue, k.Overdue, kind)
				v.number(workerInFlight, k.InFlight, kind)
				for outcome, n := range k.Attempts {
					v.number(workerAttempts, int(n), kind, string(outcome))
				}
			}
		},
	}
}

// kindSums are the states of the first kinds, and the sum of the others.
type kindSums struct{ kinds []workers.KindStatus }

func (s *kindSums) add(k workers.KindStatus) {
	if len(s.kinds) < maxKinds {
		s.kinds = append(s.kinds, k)
		return
	}
	if len(s.kinds) == maxKinds {
		s.kinds = append(s.kinds, workers.KindStatus{Kind: others, Attempts: make(map[workers.Outcome]int64)})
	}
	sum := &s.kinds[maxKinds]
	sum.Slots += k.Slots
	sum.Running += k.Running
	sum.Overdue += k.Overdue
	sum.InFlight += k.InFlight
	for outcome, n := range k.Attempts {
		sum.Attempts[outcome] += n
	}
}

// NewBuild returns a collector with the version of this program.
func NewBuild() prometheus.Collector {
	version, revision := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return collector{
		describes: []*metric{build},
		collect:   func(v *values) { v.number(build, 1, version, revision, runtime.Version()) },
	}
}
