// Package probe serves the state of a process over HTTP, for probes of an orchestrator and for monitors.
//
//	/healthz  200 while the process answers
//	/readyz   200 if the process can do its work, else 503; in both cases with the conditions of package health
//	/metrics  the handler of Config.Metrics, if there is one
//
// The body of /readyz is a [Readiness] as JSON. Each condition has its cure. Conditions that stop all work (no relay
// runs, the stream is unavailable) make the process not ready; others, such as a kind without workers, do not: a
// restart or another process would not remove them.
//
// The handlers have no authentication, and their bodies have neither args nor secrets. Serve them to the network of the
// orchestrator only.
package probe
