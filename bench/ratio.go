package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ratio is the ratio of our median to a peer's, with its target. Without a peer it is our median.
type ratio struct {
	name, label     string // in JSON, and in the table
	measure, metric string
	of, over        string  // numerator, which is ours, and denominator or ""
	target          float64 // 0: none
	percent         bool    // the median is a share
	minus           bool    // the difference, not the ratio
	floor           string  // what stands in our place for the floor's ratio. Default: floorPipeline
}

// noFloor stands for a missing floor.
const noFloor = "none"

// condition is the least of the ratios of rates under a condition to those on a small and idle ledger.
type condition struct {
	name, label string // in JSON, and in the tables
	system      string
	measure     string // default: growthName
	over        string // the small and idle ledger. Default: ours
	ofFloor     string // the condition whose ratio for the floor this is
}

var conditions = []condition{
	{name: "held_snapshot", label: "snapshot held", system: underSnapshot},
	{name: "foreign_write", label: "foreign write transaction", system: underForeign},
	{name: "waiting", label: "1,000,000 waiting", system: underWaiting},
	{name: "history", label: "5,000,000 finished", system: underHistory},
	{name: "waiting_held_snapshot", label: "1,000,000 waiting and a snapshot held", system: underWaitingHeld},
	{name: "no_condition", label: "no condition: two small and idle ledgers",
		system: underNothing, measure: controlName},
	{name: "waiting_floor", label: "the floor, with 1,000,000 waiting",
		system: floorUnderWaiting, measure: floorGrowthName, over: floorPipeline,
		ofFloor: "waiting"},
}

func (x condition) measureName() string { return cmp.Or(x.measure, growthName) }

// conditionNamed returns the condition with this name.
func conditionNamed(name string) condition {
	return conditions[slices.IndexFunc(conditions, func(x condition) bool { return x.name == name })]
}

// conditionTarget is the minimum of each condition; memoryTarget is the maximum of the relay in MB.
const (
	conditionTarget = 0.95
	memoryTarget    = 150
	relayMemory     = "relay_rss_mb"
)

var conditionRates = []string{"enqueue rate", "relay rate", "drain rate"}

// conditionRow contains the ratios of one metric under a condition. Each compares a turn with the mean of the turns
// before and after it, on a small and idle ledger.
type conditionRow struct {
	Name   string    `json:"name"`
	Metric string    `json:"metric"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"` // by round
}

// conditionRows returns the ratios of all conditions. CPU and WAL of a task are among them: they depend less than rates
// on other work on the machine.
func conditionRows(samples []sample) []conditionRow {
	var rows []conditionRow
	for _, x := range conditions {
		for _, metric := range slices.Concat(conditionRates, []string{cpuPerTask, walPerTask}) {
			if values := x.turnRatios(samples, metric); len(values) > 0 {
				rows = append(rows, conditionRow{
					x.name, metric, median(values), slices.Min(values), slices.Max(values), values,
				})
			}
		}
	}
	return rows
}

// turnRatios returns the ratio of each turn under the condition to the mean of the turns of the small and idle ledger
// before and after it, which are fewer in an interrupted run.
func (x condition) turnRatios(samples []sample, metric string) []float64 {
	name, over := x.measureName(), cmp.Or(x.over, ours)
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

// ratios are the rows of the table of ratios. The target is a minimum for rates, and a maximum for latencies, sizes and
// CPU. Rows without a target explain others.
var ratios = slices.Concat(drainRatios, enqueueRatios, everydayRatios())

var drainRatios = []ratio{
	{name: "drain_vs_floor", label: "drain, both events relayed / floor",
		measure: "drain", metric: rate, of: oursFromCommit, over: floorPipeline, target: 0.8},
	{name: "drain_from_commit_vs_river", label: "… / River, which has no relay",
		measure: "drain", metric: rate, of: oursFromCommit, over: peerRiver},
	{name: "drain_vs_river", label: "drain of a backlog that was relayed before / River",
		measure: "drain", metric: rate, of: ours, over: peerRiver, target: 1.5, floor: floorFromStream},
	{name: "wal_vs_river", label: "a task's WAL / River",
		measure: "drain", metric: walPerTask, of: ours, over: peerRiver, target: 0.37},
	{name: "relay_vs_jetstream", label: "relay / JetStream",
		measure: "relay", metric: rate, of: ours, over: floorJetStream, target: 0.75},
	{name: "relay_r3_vs_jetstream", label: "relay / JetStream, both with three replicas",
		measure: "relay", metric: rate, of: oursReplicated, over: floorJetStreamReplicated, floor: noFloor},
	{name: "relay_vs_floor", label: "relay / floor",
		measure: "relay", metric: rate, of: ours, over: floorPipeline, target: 0.8},
	{name: "relay_vs_forwarder", label: "relay / Watermill's Forwarder",
		measure: "relay", metric: rate, of: ours, over: peerWatermill, target: 12},
	{name: "exactly_once_vs_table", label: "exactly once, a transaction each / textbook's table",
		measure: "exactly-once", metric: rate, of: ours, over: peerSkipLocked, target: 1.2},
	{name: "exactly_once_exec_vs_table", label: "… with the insert's result awaited",
		measure: "exactly-once", metric: rate, of: oursExec, over: peerSkipLocked, floor: noFloor},
	{name: "exactly_once_vs_floor", label: "exactly once, a transaction each / floor",
		measure: "exactly-once", metric: rate, of: ours, over: floorPipeline, target: 0.8},
	{name: "exactly_once_each_vs_river", label: "exactly once, a transaction each / River",
		measure: "exactly-once", metric: rate, of: ours, over: peerRiver},
	{name: "exactly_once_vs_river", label: "exactly once, `Together` / River, a transaction each",
		measure: "exactly-once", metric: rate, of: oursTogether, over: peerRiver, target: 5},
}

// enqueueRatios give both forms of the enqueue the same targets, because a caller that needs the result of its business
// insert cannot use the form of one round trip. Each form is compared with floors of as many round trips, and with the
// APIs of the peers as they are.
var enqueueRatios = []ratio{
	{name: "enqueue_32_vs_pgbench", label: "enqueue by 32, one round trip / pgbench, one round trip",
		measure: "enqueue-32", metric: rate, of: ours, over: floorPgbenchOne, target: 0.9},
	{name: "enqueue_32_vs_floor", label: "… / floor, one round trip",
		measure: "enqueue-32", metric: rate, of: ours, over: floorPipeline, target: 0.9},
	{name: "enqueue_32_vs_river", label: "… / River",
		measure: "enqueue-32", metric: rate, of: ours, over: peerRiver, target: 2},
	{name: "enqueue_32_vs_watermill", label: "… / Watermill",
		measure: "enqueue-32", metric: rate, of: ours, over: peerWatermill, target: 1.2},
	{name: "enqueue_32_exec_vs_pgbench",
		label:   "enqueue by 32, insert awaited / pgbench, two round trips",
		measure: "enqueue-32", metric: rate, of: oursExec, over: floorPgbenchTwo, target: 0.9, floor: floorTwoTrips},
	{name: "enqueue_32_exec_vs_floor", label: "… / floor, two round trips",
		measure: "enqueue-32", metric: rate, of: oursExec, over: floorTwoTrips, target: 0.9, floor: noFloor},
	{name: "enqueue_32_exec_vs_river", label: "… / River",
		measure: "enqueue-32", metric: rate, of: oursExec, over: peerRiver, target: 2, floor: floorTwoTrips},
	{name: "enqueue_32_exec_vs_watermill", label: "… / Watermill",
		measure: "enqueue-32", metric: rate, of: oursExec, over: peerWatermill, target: 1.2, floor: floorTwoTrips},
}

// everydayRatios compare with River at its best settings for these rates: [everydayPace].
func everydayRatios() []ratio {
	all := []ratio{
		{name: "idle_cpu_percent", label: "idle services and PostgreSQL, % of one core",
			measure: "idle", metric: coresMetric, of: ours, target: 2, percent: true},
		{name: "idle_1000_kinds_cpu_percent", label: "… with 1,000 kinds",
			measure: "idle", metric: coresMetric, of: oursManyKinds, percent: true},
		{name: "sparse_p50_ms", label: "p50 at one task/s, ms",
			measure: "everyday-1", metric: p50, of: ours, target: 3},
	}
	for _, x := range []struct {
		perSecond                int
		cpu, oneProcess, latency float64 // targets
	}{{50, 1.25, 1, 0.4}, {200, 1, 0.85, 0.4}, {500, 1, 0.85, 0.6}} {
		measure := fmt.Sprintf("everyday-%d", x.perSecond)
		row := func(name, label, metric, of string, target float64) {
			floor := ""
			if of != ours {
				floor = noFloor
			}
			all = append(all, ratio{
				name:    fmt.Sprintf(name, x.perSecond),
				label:   fmt.Sprintf("%s at %d tasks/s / River", label, x.perSecond),
				measure: measure, metric: metric, of: of, over: peerRiver, target: target, floor: floor,
			})
		}
		row("cpu_%d_vs_river", "CPU", coresMetric, ours, x.cpu)
		row("services_%d_vs_river", "CPU without the enqueues", servicesMetric, ours, 0)
		row("cpu_%d_one_process_vs_river", "CPU, all in one process", coresMetric, oursOneProcess,
			x.oneProcess)
		row("p50_%d_vs_river", "p50", p50, ours, x.latency)
		row("p99_%d_vs_river", "p99", p99, ours, 0.7)
		if x.perSecond != 50 {
			all = append(all, ratio{
				name:    fmt.Sprintf("cpu_%d_vs_floor", x.perSecond),
				label:   fmt.Sprintf("CPU at %d tasks/s / floor", x.perSecond),
				measure: measure, metric: coresMetric, of: ours, over: floorPipeline, target: 1,
			})
		}
	}
	return append(all,
		ratio{name: "p50_2000_vs_river", label: "p50 at 2000 tasks/s / River",
			measure: "everyday-2000", metric: p50, of: ours, over: peerRiver, target: 1.5},
		ratio{name: "cpu_200_r3_vs_r1", label: "CPU at 200 tasks/s, three NATS servers / one",
			measure: "everyday-200", metric: coresMetric, of: oursReplicated, over: ours, floor: noFloor},
		ratio{name: "subscribers_20_cores", label: "cores of 20 subscribers without matching events, at 100 tasks/s",
			measure: subscribersName, metric: coresMetric, of: subscribers(20), over: ours, target: 0.05, minus: true,
			floor: noFloor},
	)
}

// atMost reports whether the target is a maximum.
func (x ratio) atMost() bool { return x.metric != rate }

// sign returns the sign before the target.
func (x ratio) sign() string {
	if x.atMost() {
		return "≤ "
	}
	return "≥ "
}

// verdict returns whether the target is reached and whether the peer is better than taskledger. Both can be true.
func (x ratio) verdict(value float64) string {
	var parts []string
	switch {
	case x.target == 0:
	case value == x.target || value < x.target == x.atMost():
		parts = append(parts, "reached")
	default:
		parts = append(parts, "missed")
	}
	isPeer := slices.Contains([]string{peerRiver, peerWatermill, peerSkipLocked}, x.over)
	if isPeer && value != 1 && value > 1 == x.atMost() {
		parts = append(parts, x.over+" is better")
	}
	return strings.Join(parts, ", ")
}

// value returns the ratio, and false if a figure is missing.
func (x ratio) value(r *report) (float64, bool) { return x.valueOf(r, x.of) }

// ofFloor returns the ratio with the floor in our place: the machine's limit. It returns false if the floor
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
	switch {
	case !ok:
		return 0, false
	case x.minus:
		return value - theirs, true
	case theirs <= 0:
		return 0, false
	}
	return value / theirs, true
}
