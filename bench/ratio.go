package main

import "cmp"

// ratio is the ratio of our median to that of a peer, with its target. Without a peer it is our median.
type ratio struct {
	name            string
	measure, metric string
	of, over        string // numerator, which is ours, and denominator or ""
	target          float64
	percent         bool   // the median is a share
	floor           string // what stands in our place for the floor's ratio. Default: floorPipeline
}

// condition is the least ratio of our rates under a condition to those on a small and idle ledger.
type condition struct {
	name, system string
}

var conditions = []condition{
	{"held_snapshot", underSnapshot},
	{"foreign_write", underForeign},
	{"waiting", underWaiting},
	{"history", underHistory},
	{"waiting_held_snapshot", underWaitingHeld},
}

// conditionTarget is the minimum of each condition; memoryTarget is the maximum of the relay in MB.
const (
	conditionTarget = 0.95
	memoryTarget    = 150
	relayMemory     = "relay_rss_mb"
)

var conditionRates = []string{"enqueue rate", "relay rate", "drain rate"}

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
