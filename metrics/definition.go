package metrics

import "github.com/prometheus/client_golang/prometheus"

// Type is the type of a metric.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Definition describes a metric.
type Definition struct {
	Name   string
	Type   Type
	Labels []string
	Help   string
}

// Definitions returns the definitions of all metrics, in the order of docs/metrics.md.
func Definitions() []Definition {
	all := make([]Definition, 0, len(definitions))
	for _, m := range definitions {
		all = append(all, m.Definition)
	}
	return all
}

// metric is a metric whose values are read at each scrape.
type metric struct {
	Definition
	desc *prometheus.Desc
}

var definitions []*metric

func define(t Type, name, help string, labels ...string) *metric {
	m := &metric{Definition{name, t, labels, help}, prometheus.NewDesc(name, help, labels, nil)}
	definitions = append(definitions, m)
	return m
}

// Of the whole ledger: the same in each process that exports them.
var (
	readable = define(Gauge, "taskledger_ledger_readable",
		"Whether the ledger could be read at this scrape. Without it the metrics of the ledger are missing.")
	conditions = define(Gauge, "taskledger_conditions",
		"Conditions that hold and on which an operator should act, see docs/operations.md.", "condition")

	kindsSummed = define(Gauge, "taskledger_kinds_summed",
		"Kinds without metrics of their own: after the first 100, they are summed as kind=\"(others)\".")
	tasks = define(Gauge, "taskledger_tasks",
		"Tasks in each state, as projected.", "kind", "state")
	enqueued = define(Counter, "taskledger_tasks_enqueued_total",
		"Tasks enqueued since the first scrape of this process, as projected.", "kind")
	started = define(Counter, "taskledger_attempts_started_total",
		"Attempts begun since the first scrape of this process, as projected.", "kind")
	succeeded = define(Counter, "taskledger_tasks_succeeded_total",
		"Tasks succeeded since the first scrape of this process, as projected.", "kind")
	failed = define(Counter, "taskledger_attempts_failed_total",
		"Attempts failed since the first scrape of this process, as projected.", "kind")
	dead = define(Counter, "taskledger_tasks_dead_total",
		"Tasks that became dead since the first scrape of this process, as projected.", "kind")
	cancelled = define(Counter, "taskledger_tasks_cancelled_total",
		"Tasks cancelled since the first scrape of this process, as projected.", "kind")
	waiting = define(Histogram, "taskledger_task_waiting_seconds",
		"Time from when a task became available to the beginning of its attempt. The sum is estimated to a tenth.",
		"kind")
	running = define(Histogram, "taskledger_attempt_running_seconds",
		"Time that an attempt ran. The sum is estimated to a tenth.", "kind")
	oldestWaiting = define(Gauge, "taskledger_oldest_waiting_task_seconds",
		"Time that the oldest available task has waited, of the 1,000 oldest unfinished tasks.", "kind")
	unhandled = define(Gauge, "taskledger_unhandled_tasks",
		"Unfinished tasks of kinds without a live worker.", "kind")
	paused = define(Gauge, "taskledger_kinds_paused",
		"Kinds that an operator has paused.")
	rejected = define(Counter, "taskledger_enqueues_rejected_total",
		"Calls since the creation of the ledger that a limit has rejected.")

	relayLag = define(Gauge, "taskledger_relay_lag_events",
		"Committed events that are not published, at most 10,000.")
	relayLagSeconds = define(Gauge, "taskledger_relay_lag_seconds",
		"Age of the oldest committed event that is not published.")
	relayAlive = define(Gauge, "taskledger_relay_alive",
		"Whether a relay holds a live lease.")
	dispatcherAlive = define(Gauge, "taskledger_dispatcher_alive",
		"Whether a dispatcher holds a live lease.")
	dispatcherEpoch = define(Gauge, "taskledger_dispatcher_epoch",
		"Number of the active dispatcher, or of the last one: it rises with each change.")
	relayInfo = define(Gauge, "taskledger_relay_info",
		"The holder of the relay's lease. The value is 1.", "holder")
	parked = define(Gauge, "taskledger_events_parked",
		"Events that cannot be published, at most 10,001.")
	generation = define(Gauge, "taskledger_stream_generation",
		"Number of times that the stream has lost messages, plus 1.")
	streamMessages = define(Gauge, "taskledger_stream_messages",
		"Messages on the stream.")
	streamBytes = define(Gauge, "taskledger_stream_bytes",
		"Size of the stream.")
	streamMaxBytes = define(Gauge, "taskledger_stream_max_bytes",
		"Greatest size of the stream. Missing: it has no limit.")

	projectionLag = define(Gauge, "taskledger_projection_lag_events",
		"Committed events that the built-in projection has not applied, at most 10,000.")
	projectionLagSeconds = define(Gauge, "taskledger_projection_lag_seconds",
		"Age of the oldest event that the built-in projection has not applied.")
	projectionParked = define(Gauge, "taskledger_projection_parked_events",
		"Events that a projection has parked.", "projection")
	subscribersLeftOut = define(Gauge, "taskledger_subscribers_left_out",
		"Subscribers without metrics of their own: those beyond the 100 that are the furthest behind.")
	subscriberLag = define(Gauge, "taskledger_subscriber_lag_events",
		"Events that a subscriber of the feed has not passed, at most 10,000.", "subscriber")
	subscriberLagSeconds = define(Gauge, "taskledger_subscriber_lag_seconds",
		"Age of the oldest event that a subscriber has not passed.", "subscriber")

	timersDue = define(Gauge, "taskledger_timers_due",
		"Delays, retries and deadlines that are due and not fired.")
	timersLate = define(Gauge, "taskledger_timers_late_seconds",
		"Time that the first of these timers has been due.")
	schedulesLate = define(Gauge, "taskledger_schedules_late_seconds",
		"Time that the latest firing of a schedule has been due.")
	alarmsUndelivered = define(Gauge, "taskledger_alarms_undelivered",
		"Receivers whose newest alarm is not delivered.")
	oldestTransaction = define(Gauge, "taskledger_oldest_transaction_seconds",
		"Age of the oldest open write transaction of the database cluster. Vacuum waits for it, and no service does.")
)

// Of one process.
var (
	build = define(Gauge, "taskledger_build_info",
		"The build of this process. The value is 1.", "version", "revision", "go_version")

	connections = define(Gauge, "taskledger_database_connections",
		"Connections of a pool: acquired, idle or constructing.", "state")
	maxConnections = define(Gauge, "taskledger_database_max_connections",
		"Greatest number of connections of a pool.")
	acquires = define(Counter, "taskledger_database_acquires_total",
		"Connections taken from a pool.")
	acquireWaits = define(Counter, "taskledger_database_acquire_waits_total",
		"Connections that were not available at once, so that a statement waited.")
	acquireWaitSeconds = define(Counter, "taskledger_database_acquire_wait_seconds_total",
		"Time that statements waited for a connection.")

	natsConnected = define(Gauge, "taskledger_nats_connected",
		"Whether the process is connected to NATS.")
	natsReconnects = define(Counter, "taskledger_nats_reconnects_total",
		"Times that the connection to NATS was restored.")

	workerSlots = define(Gauge, "taskledger_worker_slots",
		"Handlers of a kind that may run at once in this process.", "kind")
	workerRunning = define(Gauge, "taskledger_worker_handlers_running",
		"Handlers of a kind that run in this process, the overdue ones included.", "kind")
	workerOverdue = define(Gauge, "taskledger_worker_handlers_overdue",
		"Handlers of a kind that did not return in time.", "kind")
	workerInFlight = define(Gauge, "taskledger_worker_in_flight_tasks",
		"Tasks of a kind that were offered to this process, and whose outcome is not recorded yet.", "kind")
	workerAttempts = define(Counter, "taskledger_worker_attempts_total",
		"Attempts of a kind that have ended in this process.", "kind", "outcome")

	workerWaiting = define(Histogram, "taskledger_worker_task_waiting_seconds",
		"Time from when a task became available to the beginning of its attempt in this process.", "kind")
	workerRan = define(Histogram, "taskledger_worker_attempt_running_seconds",
		"Time that an attempt ran in this process, with hooks and the recording of its outcome.", "kind")
)
