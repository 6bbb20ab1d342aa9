package main

// ratio is the ratio of our median to that of a peer, with its target.
type ratio struct {
	name            string
	measure, metric string
	of, over        string // numerator, which is ours, and denominator
	target          float64
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
}

// conditionTarget is the minimum of each condition; memoryTarget is the maximum of the relay in MB.
const (
	conditionTarget = 0.9
	memoryTarget    = 150
	relayMemory     = "relay_rss_mb"
)

var conditionRates = []string{"enqueue rate", "relay rate", "drain rate"}

// ratios are those with a target. The target is a minimum for rates, and a maximum for latencies and
// sizes.
var ratios = []ratio{
	{"enqueue_32_vs_river", "enqueue-32", rate, ours, peerRiver, 2.0},
	{"enqueue_32_vs_watermill", "enqueue-32", rate, ours, peerWatermill, 1.3},
	{"enqueue_32_vs_pgbench", "enqueue-32", rate, ours, floorPgbench, 0.75},
	{"relay_vs_forwarder", "relay", rate, ours, peerWatermill, 12},
	{"relay_vs_jetstream", "relay", rate, ours, floorJetStream, 0.8},
	{"drain_vs_river", "drain", rate, ours, peerRiver, 5},
	{"exactly_once_vs_river", "exactly-once", rate, oursTogether, peerRiver, 3},
	{"p50_500_vs_river", "latency-500", p50, ours, peerRiver, 0.1},
	{"p99_500_vs_river", "latency-500", "p99", ours, peerRiver, 0.2},
	{"wal_vs_river", "drain", walPerTask, ours, peerRiver, 0.42},
}

// atMost reports whether the target is a maximum.
func (x ratio) atMost() bool { return x.metric != rate }
