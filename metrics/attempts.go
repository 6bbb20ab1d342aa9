package metrics

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/taskledger/taskledger/workers"
)

// Attempts collects the durations of attempts, as a hook of the pools that run them. It is safe for concurrent use.
type Attempts struct {
	workers.HookDefaults
	waiting, running *prometheus.HistogramVec

	mu     sync.Mutex
	labels labels
}

// NewAttempts returns a collector of how long tasks wait and attempts run, for [workers.Config].Hooks.
func NewAttempts() *Attempts {
	return &Attempts{waiting: workerWaiting.vec(), running: workerRan.vec(), labels: make(labels)}
}

// AfterAttempt implements [workers.Hook].
func (a *Attempts) AfterAttempt(_ context.Context, job *workers.Job, end workers.AttemptEnd) {
	a.mu.Lock()
	kind := a.labels.of(job.Kind)
	a.mu.Unlock()
	a.running.WithLabelValues(kind).Observe(end.Duration.Seconds())
	if end.Waited > 0 {
		a.waiting.WithLabelValues(kind).Observe(end.Waited.Seconds())
	}
}

// Describe implements [prometheus.Collector].
func (a *Attempts) Describe(to chan<- *prometheus.Desc) {
	a.waiting.Describe(to)
	a.running.Describe(to)
}

// Collect implements [prometheus.Collector].
func (a *Attempts) Collect(to chan<- prometheus.Metric) {
	a.waiting.Collect(to)
	a.running.Collect(to)
}
