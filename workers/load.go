package workers

import (
	"encoding/json"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// WorkerLoad is the work of a worker for one kind, as of the last renewal of its lease: at most LeaseTTL/3 ago while
// the worker is alive.
type WorkerLoad struct {
	Slots     int     `json:"slots"`      // see [KindConfig].Slots
	InFlight  int     `json:"in_flight"`  // tasks from offer to outcome
	Running   int     `json:"running"`    // slots taken by handlers, the overdue ones included
	Overdue   int     `json:"overdue"`    // handlers that did not return in time, and keep their slots
	PerMinute float64 `json:"per_minute"` // attempts that ended, since the renewal before, as a rate
}

// loads is the work of the kinds of a pool between renewals of its lease. It is safe for concurrent use.
type loads struct {
	mu    sync.Mutex
	at    time.Time
	ended map[ledger.Kind]int64
	rates map[ledger.Kind]float64
}

// minLoadTime is the least time over which a rate is measured.
const minLoadTime = 100 * time.Millisecond

// read returns the work of kinds. Each call ends the time over which the rates are measured, unless it was too short.
func (l *loads) read(kinds []*kind, now time.Time) map[ledger.Kind]WorkerLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	passed := now.Sub(l.at)
	isFirst := l.at.IsZero()
	ended := make(map[ledger.Kind]int64, len(kinds))
	all := make(map[ledger.Kind]WorkerLoad, len(kinds))
	if isFirst || passed >= minLoadTime {
		rates := make(map[ledger.Kind]float64, len(kinds))
		for _, k := range kinds {
			for i := range outcomes {
				ended[k.Name] += k.counts.attempts[i].Load()
			}
			if !isFirst {
				rates[k.Name] = math.Round(float64(ended[k.Name]-l.ended[k.Name])/passed.Minutes()*10) / 10
			}
		}
		l.at, l.ended, l.rates = now, ended, rates
	}
	for _, k := range kinds {
		load := WorkerLoad{Slots: k.slots(), Running: k.Running(), Overdue: k.Overdue(), PerMinute: l.rates[k.Name]}
		load.InFlight, _ = k.Tasks.Size()
		all[k.Name] = load
	}
	return all
}

// parseLoads returns the loads in the detail of a lease, or nil without any. Malformed loads must not hide a worker,
// because other workers respect its kinds and shards.
func parseLoads(text json.RawMessage) (all map[ledger.Kind]WorkerLoad) {
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	return all
}

// programVersion is the version of this program's main module, or its revision if it has none.
var programVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	return ""
})

// maxVersion is the maximum number of bytes of the version of a program that is read.
const maxVersion = 200

// parseVersion returns the version of the program of a worker, or "" if it is unknown.
func parseVersion(text json.RawMessage) (version string) {
	if json.Unmarshal(text, &version) != nil || len(version) > maxVersion {
		return ""
	}
	return version
}

const (
	// maxNames is how many names of workers over HTTP a lease contains.
	maxNames = 20
	// maxName is the maximum number of bytes of a name that is read.
	maxName = 128
)

// parseNames returns the names of workers over HTTP, or nil if they are invalid.
func parseNames(text json.RawMessage) (names []string) {
	if json.Unmarshal(text, &names) != nil || len(names) > maxNames ||
		slices.ContainsFunc(names, func(n string) bool { return len(n) > maxName }) {
		return nil
	}
	return names
}
