package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// sample is what top shows: one reading, as JSON, too.
type sample struct {
	At         time.Time          `json:"at"` // by the database's clock
	Total      topKind            `json:"total"`
	Kinds      []topKind          `json:"kinds"`   // the worst first
	Workers    []workers.Worker   `json:"workers"` // live
	ToPublish  int64              `json:"to_publish"`
	ToProject  int                `json:"to_project"`
	Behind     []behind           `json:"subscribers"` // the furthest behind first
	Conditions []health.Condition `json:"degraded"`
}

// topKind is a kind now, with its rates of the last one to two minutes.
type topKind struct {
	Kind      ledger.Kind            `json:"kind,omitempty"`
	Trouble   string                 `json:"trouble,omitempty"`
	Tasks     map[ledger.State]int64 `json:"tasks"`
	Succeeded float64                `json:"succeeded_per_minute"`
	Failed    float64                `json:"failed_per_minute"` // attempts
	Workers   int64                  `json:"workers"`           // live
	OldestAt  time.Time              `json:"oldest_waiting_at,omitzero"`
}

// behind is how far a subscriber is behind.
type behind struct {
	Name   string        `json:"name"`
	Events int64         `json:"events"`
	Age    time.Duration `json:"-"`
	AgeMS  int64         `json:"age_ms"`
}

// sampler reads samples. It is not safe for concurrent use.
type sampler struct {
	app *app
	db  ledger.DB
	js  jetstream.JetStream // nil: not connected, or not permitted
}

func (s *sampler) close() {
	if s.js != nil {
		s.js.Conn().Close()
	}
}

// read returns a sample. While NATS is not available it tries to connect each time.
func (s *sampler) read(ctx context.Context) (sample, error) {
	var away error
	if s.js == nil {
		s.js, away = s.app.jetStream()
	}
	r, err := health.Read(ctx, health.Config{
		DB: s.db, JetStream: s.js, NATSError: away, Alarms: alarm.ReadUndelivered,
	})
	if err != nil {
		return sample{}, err
	}
	listed, err1 := readKinds(ctx, s.db, "", lists.All)
	minute := r.At.UTC().Truncate(time.Minute)
	stats, err2 := projector.ReadKindStats(ctx, s.db, "", minute.Add(-time.Minute), minute.Add(time.Minute))
	oldest, _, err3 := projector.ReadOldest(ctx, s.db)
	all, err4 := workers.ReadWorkers(ctx, s.db, "", lists.All)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return sample{}, err
	}
	n := sample{At: r.At, ToPublish: r.Outbox.Waiting, ToProject: r.Projection.Waiting, Conditions: r.Degraded,
		Kinds: []topKind{}, Behind: []behind{}}
	n.Workers = slices.DeleteFunc(all, func(w workers.Worker) bool { return !w.Alive })
	for _, sub := range r.Subscribers {
		n.Behind = append(n.Behind, behind{sub.Name, sub.Lag, time.Duration(sub.Age) * time.Millisecond, sub.Age})
	}
	slices.SortStableFunc(n.Behind, func(a, b behind) int { return cmp.Compare(b.Events, a.Events) })
	n.addKinds(listed, stats, oldest, r.At.Sub(minute)+time.Minute)
	return n, nil
}

// addKinds adds the kinds and their sum. took is the time of the statistics.
func (n *sample) addKinds(listed []listedKind, stats []projector.KindStats, oldest map[ledger.Kind]time.Time,
	took time.Duration) {
	kinds := make(map[ledger.Kind]*topKind)
	n.Total.Tasks = make(map[ledger.State]int64)
	for _, l := range listed {
		k := &topKind{Kind: l.Kind, Tasks: l.Tasks, Workers: l.Workers, OldestAt: oldest[l.Kind]}
		if l.Paused != nil {
			k.Trouble = "paused"
		}
		for state, tasks := range l.Tasks {
			n.Total.Tasks[state] += tasks
		}
		kinds[l.Kind] = k
	}
	for _, s := range stats {
		k := kinds[s.Kind]
		if k == nil {
			k = &topKind{Kind: s.Kind, Tasks: map[ledger.State]int64{}}
			kinds[s.Kind] = k
		}
		for _, one := range []*topKind{k, &n.Total} {
			one.Succeeded += float64(s.Succeeded) / took.Minutes()
			one.Failed += float64(s.Failed) / took.Minutes()
		}
	}
	n.Total.Workers = int64(len(n.Workers))
	maps.DeleteFunc(kinds, func(k ledger.Kind, _ *topKind) bool { return reserved.IsKind(k) })
	for _, k := range kinds {
		k.findTrouble()
		n.Kinds = append(n.Kinds, *k)
	}
	slices.SortFunc(n.Kinds, func(a, b topKind) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(b.Failed, a.Failed),
			cmp.Compare(b.Tasks[ledger.StateDead], a.Tasks[ledger.StateDead]),
			cmp.Compare(b.Tasks[ledger.StateAvailable], a.Tasks[ledger.StateAvailable]),
			cmp.Compare(b.Succeeded, a.Succeeded), cmp.Compare(a.Kind, b.Kind))
	})
}

// findTrouble sets the trouble of a kind in one or two words.
func (k *topKind) findTrouble() {
	switch {
	case k.Trouble != "": // paused
	case k.Workers == 0 && k.Tasks[ledger.StateAvailable] > 0:
		k.Trouble = "no worker"
	case k.Failed >= 1 && k.Failed >= (k.Succeeded+k.Failed)/5:
		k.Trouble = "failing"
	}
}

// rank returns a number for the order of kinds by their trouble.
func (k *topKind) rank() int {
	return slices.Index([]string{"", "paused", "failing", "no worker"}, k.Trouble)
}

// line returns the sample as one line.
func (n sample) line() string {
	t := n.Total.Tasks
	line := fmt.Sprintf("%s  succeeded %s, failed %s, waiting %s, running %s, retrying %s, dead %s, workers %s, "+
		"to publish %s, to project %s", n.At.UTC().Format(time.RFC3339), perMinute(n.Total.Succeeded),
		perMinute(n.Total.Failed), count(t[ledger.StateAvailable]), count(t[ledger.StateRunning]),
		count(t[ledger.StateRetrying]), count(t[ledger.StateDead]), count(n.Total.Workers), count(n.ToPublish),
		count(int64(n.ToProject)))
	names := make([]string, 0, len(n.Conditions))
	for _, c := range n.Conditions {
		if !slices.Contains(names, string(c.Name)) {
			names = append(names, string(c.Name))
		}
	}
	if len(names) > 0 {
		line += "; degraded: " + strings.Join(names, ", ")
	}
	return line
}

// perMinute returns a rate.
func perMinute(rate float64) string {
	switch {
	case rate == 0:
		return "0/min"
	case rate < 10:
		return fmt.Sprintf("%.1f/min", rate)
	}
	return count(int64(rate)) + "/min"
}
