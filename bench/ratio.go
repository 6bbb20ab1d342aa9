package main

import (
	"cmp"
	"slices"
)

// ratio is the ratio of our median to that of a peer, with its target. Without a peer it is our median.
type ratio struct {
	name            string
	measure, metric string
	of, over        string // numerator, which is ours, and denominator or ""
	target          float64
	percent         bool   // the median is a share
	floor           string // what stands in our place for the floor's ratio. Default: floorPipeline
}

// condition is the least of the ratios of rates under a condition to those on a small and idle ledger.
type condition struct {
	name, system string
	measure      string // default: growthName
	over         string // the small and idle ledger. Default: ours
	ofFloor      string // the condition of which this is the floor's ratio
}

var conditions = []condition{
	{name: "held_snapshot", system: underSnapshot},
	{name: "foreign_write", system: underForeign},
	{name: "waiting", system: underWaiting},
	{name: "history", system: underHistory},
	{name: "waiting_held_snapshot", system: underWaitingHeld},
	{name: "no_condition", system: underNothing, measure: controlName},
	{name: "waiting_floor", system: floorUnderWaiting, measure: floorGrowthName, over: floorPipeline,
		ofFloor: "waiting"},
}

// conditionTarget is the minimum of each condition; memoryTarget is the maximum of the relay in MB.
const (
	conditionTarget = 0.95
	memoryTarget    = 150
	relayMemory     = "relay_rss_mb"
)

var conditionRates = []string{"enqueue rate", "relay rate", "drain rate"}

// conditionRow has the ratios of one metric under a condition. Each is that of a turn to the mean of the turns of the
// small and idle ledger before and after it.
type conditionRow struct {
	Name   string    `json:"name"`
	floor  string    // as condition.ofFloor
	Metric string    `json:"metric"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"` // by round
}

// conditionRows returns the ratios of all conditions. CPU and WAL of a task are among them: beside other work on the
// machine they change less than rates.
func conditionRows(samples []sample) []conditionRow {
	var rows []conditionRow
	for _, x := range conditions {
		for _, metric := range slices.Concat(conditionRates, []string{cpuPerTask, walPerTask}) {
			if values := x.turnRatios(samples, metric); len(values) > 0 {
				rows = append(rows, conditionRow{
					x.name, x.ofFloor, metric, median(values), slices.Min(values), slices.Max(values), values,
				})
			}
		}
	}
	return rows
}

// turnRatios returns the ratio of each turn under the condition to the mean of the turns of the small and idle ledger
// before and after it, which are fewer in an interrupted run.
func (x condition) turnRatios(samples []sample, metric string) []float64 {
	name, over := cmp.Or(x.measure, growthName), cmp.Or(x.over, ours)
	var values []float64
	var before, turn float64
	for _, s := range samples {
		switch {
		case s.measure != name || s.metric != metric:
		case s.system == x.system:
			turn = s.value
		case s.system == over:
			if turn > 0 && before+s.value > 0 {
				values = append(values, 2*turn/(before+s.value))
			}
			before, turn = s.value, 0
		default:
			turn = 0
		}
	}
	return values
}

// ratios are those with a target. The target is a minimum for rates, and a maximum for latencies, sizes and CPU.
var ratios = []ratio{
	{name: "drain_vs_floor", measure: "drain", metric: rate, of: oursFromCommit, over: floorPipeline, target: 0.8},
	{name: "drain_vs_river", measure: "drain", metric: rate, of: ours, over: peerRiver, target: 1.5,
		floor: floorFromStream},
	{name: "relay_vs_jetstream", measure: "relay", metric: rate, of: ours, over: floorJetStream, target: 0.75},
	{name: "relay_vs_floor", measure: "relay", metric: rate, of: ours, over: floorPipeline, target: 0.8},
	{name: "relay_vs_forwarder", measure: "relay", metric: rate, of: ours, over: peerWatermill, target: 12},
	{name: "exactly_once_vs_table", measure: "exactly-once", metric: rate, of: ours, over: peerSkipLocked, target: 1.2},
	{name: "exactly_once_vs_floor", measure: "exactly-once", metric: rate, of: ours, over: floorPipeline, target: 0.8},
	{name: "exactly_once_vs_river", measure: "exactly-once", metric: rate, of: oursTogether, over: peerRiver,
		target: 5},
	{name: "enqueue_32_vs_river", measure: "enqueue-32", metric: rate, of: ours, over: peerRiver, target: 2},
	{name: "enqueue_32_vs_pgbench", measure: "enqueue-32", metric: rate, of: ours, over: floorPgbench, target: 0.9},
	{name: "enqueue_32_vs_floor", measure: "enqueue-32", metric: rate, of: ours, over: floorPipeline, target: 0.9},
	{name: "enqueue_32_vs_watermill", measure: "enqueue-32", metric: rate, of: ours, over: peerWatermill, target: 1.2},
	{name: "p50_500_vs_river", measure: "everyday-500", metric: p50, of: ours, over: peerRiver, target: 1},
	{name: "p99_500_vs_river", measure: "everyday-500", metric: "p99", of: ours, over: peerRiver, target: 1},
	{name: "p50_2000_vs_river", measure: "everyday-2000", metric: p50, of: ours, over: peerRiver, target: 1.5},
	{name: "wal_vs_river", measure: "drain", metric: walPerTask, of: ours, over: peerRiver, target: 0.37},
	{name: "idle_cpu_percent", measure: "idle", metric: coresMetric, of: ours, target: 2, percent: true},
	{name: "sparse_p50_ms", measure: "everyday-1", metric: p50, of: ours, target: 3},
	{name: "cpu_200_vs_river", measure: "everyday-200", metric: coresMetric, of: ours, over: peerRiver, target: 1},
	{name: "cpu_500_vs_river", measure: "everyday-500", metric: coresMetric, of: ours, over: peerRiver, target: 1},
	{name: "cpu_200_vs_floor", measure: "everyday-200", metric: coresMetric, of: ours, over: floorPipeline, target: 1},
	{name: "cpu_500_vs_floor", measure: "everyday-500", metric: coresMetric, of: ours, over: floorPipeline, target: 1},
}

// atMost reports whether the target is a maximum.
func (x ratio) atMost() bool { return x.metric != rate }

// value returns the ratio, and false if a figure is missing.
func (x ratio) value(r *report) (float64, bool) { return x.valueOf(r, x.of) }

// ofFloor returns what the ratio is with the floor in our place: what the machine allows. It returns false if the floor
// does not take part, or is the peer.
func (x ratio) ofFloor(r *report) (float64, bool) {
	if x.over == floorPipeline {
		return 0, false
	}
	return x.valueOf(r, cmp.Or(x.floor, floorPipeline))
}

func (x ratio) valueOf(r *report, system string) (float64, bool) {
	value, ok := r.median(x.measure, system, x.metric)
	if x.percent {
		value *= 100
	}
	if !ok || x.over == "" {
		return value, ok
	}
	theirs, ok := r.median(x.measure, x.over, x.metric)
	if !ok || theirs <= 0 {
		return 0, false
	}
	return value / theirs, true
}
