// Package probe serves the state of a process over HTTP, for probes of an orchestrator and for monitors.
//
//	/healthz  200 while the process answers
//	/readyz   200 if the process can do its work, else 503; in both cases with the conditions of package health
//	/metrics  the handler of Config.Metrics, if there is one
//
// The body of /readyz is a [Readiness] as JSON. Each condition comes with its cure. Conditions that stop all work (no
// relay runs, the stream is unavailable) make the process not ready. Others, such as a kind without workers, do not,
// because a restart or another process would not remove them.
//
// The handlers have no authentication, and their bodies contain neither args nor secrets. Serve them only to the
// orchestrator's network.
package probe
