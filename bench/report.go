package main

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report is the result of a run.
type report struct {
	Quick    bool               `json:"quick"`
	Partial  string             `json:"partial,omitempty"` // why figures are missing
	Only     []string           `json:"only,omitempty"`
	Scale    float64            `json:"scale"`
	Rounds   int                `json:"rounds"`
	Began    time.Time          `json:"began"`
	Seconds  float64            `json:"seconds"`
	Machine  machine            `json:"machine"`
	Versions map[string]string  `json:"versions"`
	Settings settings           `json:"settings"`
	Ratios   map[string]float64 `json:"ratios"`
	// FloorRatios are the ratios that the floor reaches in our place.
	FloorRatios map[string]float64 `json:"floor_ratios,omitempty"`
	// Conditions are the growth ratios by rate. Ratios contains the lowest of each condition.
	Conditions []conditionRow `json:"conditions,omitempty"`
	Figures    []row          `json:"figures"`

	samples []sample
	titles  map[string]string
	order   []string // names of the measures, in the order of the run
}

type machine struct {
	CPU      string `json:"cpu,omitempty"`
	Cores    int    `json:"cores"`
	MemoryMB int    `json:"memory_mb,omitempty"`
	OS       string `json:"os"`
	Disk     string `json:"disk,omitempty"` // file system of the servers' files
}

// settings are the settings that differ from the defaults.
type settings struct {
	PostgreSQL map[string]string `json:"postgresql"`
	JetStream  map[string]string `json:"jetstream"`
	Systems    map[string]string `json:"systems"` // setting that tune chose, by measure and system
}

// sample is one figure of one trial.
type sample struct {
	measure, system, metric, unit string
	round                         int
	value                         float64
}

// row is the summary of all rounds.
type row struct {
	Measure string    `json:"measure"`
	Metric  string    `json:"metric"`
	System  string    `json:"system"`
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Ratio   float64   `json:"ratio,omitempty"` // ours divided by this
	Values  []float64 `json:"values"`          // by round
}

func newReport(c config) *report {
	return &report{
		Quick: c.quick, Only: c.only, Scale: c.scale, Rounds: c.roundCount(), Began: time.Now().UTC(),
		Machine: machine{
			CPU: cpuName(), Cores: runtime.NumCPU(), MemoryMB: memoryMB(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		},
		Settings: settings{
			JetStream: map[string]string{"sync_interval": "1s (relay-fsync: always)", "storage": "file",
				"replicas": "1 (three replicas: on three servers in one process)"},
			Systems: map[string]string{},
		},
		Versions: versions(), Ratios: map[string]float64{}, titles: map[string]string{},
	}
}

// versions returns the versions of Go, of this module and of the peers.
func versions() map[string]string {
	v := map[string]string{"go": runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v["taskledger"] = s.Value
		}
	}
	for _, m := range info.Deps {
		for _, prefix := range []string{
			"riverqueue/river", "ThreeDotsLabs/", "jackc/pgx", "nats-io/nats.go", "nats-io/nats-server",
		} {
			if strings.HasPrefix(m.Path, "github.com/"+prefix) && !strings.Contains(m.Path, "/river/") {
				v[strings.TrimPrefix(m.Path, "github.com/")] = m.Version
			}
		}
	}
	return v
}

// describe reads the version and the settings of the server.
func (r *report) describe(ctx context.Context, s *databaseServer) error {
	r.Settings.PostgreSQL = map[string]string{}
	rows, err := s.admin.Query(ctx, statement("server_settings"))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		if name == "server_version" {
			r.Versions["postgresql"] = value
			continue
		}
		r.Settings.PostgreSQL[name] = value
	}
	r.Machine.Disk = diskOf(s.dir)
	return rows.Err()
}

// recordTuning records the setting that tune chose for a contender.
func (r *report) recordTuning(measure string, x contender, best string) {
	r.Settings.Systems[measure+", "+x.system] = strings.TrimSpace(x.setting + " " + best)
}

// record adds the figures of a trial.
func (r *report) record(m measure, system string, round int, figures []figure) {
	if _, ok := r.titles[m.name]; !ok {
		r.titles[m.name] = m.title
		r.order = append(r.order, m.name)
	}
	for _, f := range figures {
		r.samples = append(r.samples, sample{m.name, system, f.metric, f.unit, round, f.value})
	}
	r.finish() // an interrupted run prints the report
}

// finish computes medians and ratios.
func (r *report) finish() {
	r.Seconds = math.Round(time.Since(r.Began).Seconds())
	r.summarize()
	r.Conditions = conditionRows(r.samples)
	r.compare()
}

// summarize computes the figures of the samples.
func (r *report) summarize() {
	r.Figures = nil
	for _, s := range r.samples {
		i := slices.IndexFunc(r.Figures, func(w row) bool {
			return w.Measure == s.measure && w.System == s.system && w.Metric == s.metric
		})
		if i < 0 {
			i = len(r.Figures)
			r.Figures = append(r.Figures, row{Measure: s.measure, System: s.system, Metric: s.metric, Unit: s.unit})
		}
		r.Figures[i].Values = append(r.Figures[i].Values, s.value)
	}
	for i := range r.Figures {
		w := &r.Figures[i]
		w.Median, w.Min, w.Max = median(w.Values), slices.Min(w.Values), slices.Max(w.Values)
	}
	for i := range r.Figures {
		w := &r.Figures[i]
		isOurs := w.System == ours || strings.HasPrefix(w.System, ours+",")
		if mine, ok := r.median(w.Measure, ours, w.Metric); ok && !isOurs && w.Median > 0 {
			w.Ratio = mine / w.Median
		}
	}
}

// compare computes the ratios of the figures and conditions.
func (r *report) compare() {
	r.Ratios, r.FloorRatios = map[string]float64{}, map[string]float64{}
	for _, x := range ratios {
		if value, ok := x.value(r); ok {
			r.Ratios[x.name] = value
		}
		if value, ok := x.ofFloor(r); ok {
			r.FloorRatios[x.name] = value
		}
	}
	for _, x := range r.Conditions {
		ratios, name := r.Ratios, x.Name
		if floor := conditionNamed(name).ofFloor; floor != "" {
			ratios, name = r.FloorRatios, floor
		}
		least, seen := ratios[name]
		if slices.Contains(conditionRates, x.Metric) && (!seen || x.Median < least) {
			ratios[name] = x.Median
		}
	}
	if mb, ok := r.median("memory", behindWhole, "relay memory"); ok {
		r.Ratios[relayMemory] = mb
	}
}

func (r *report) median(measure, system, metric string) (float64, bool) {
	for _, w := range r.Figures {
		if w.Measure == measure && w.System == system && w.Metric == metric {
			return w.Median, true
		}
	}
	return 0, false
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// cpuName and memoryMB read /proc. On systems without it they return zero values.
func cpuName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func memoryMB() int {
	text, _ := os.ReadFile("/proc/meminfo")
	return kilobytes(string(text), "MemTotal:") / 1024
}
