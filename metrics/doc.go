// Package metrics exports the state of a ledger and of its processes to Prometheus.
//
//	taskledger serve --listen     /metrics with the ledger and its pool of connections
//	a program with a client       process := NewProcess(), for Options.Metrics of taskledger.Open; Handler(process)
//
// [NewLedger] reads the ledger at each scrape. Every process that exports it returns the same values, so queries use
// max, never sum. All other metrics describe one process; their sum describes all processes.
//
// docs/metrics.md lists every metric with its labels. Labels are bounded:
// a process exports at most 100 kinds, and adds up the others under the kind "(others)".
package metrics
