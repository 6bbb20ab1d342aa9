package metrics

import "github.com/prometheus/client_golang/prometheus"

// The types of metrics.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// metric is a metric whose values are read at each scrape.
type metric struct {
	name   string
	kind   string // counter, gauge or histogram
	labels []string
	help   string
	desc   *prometheus.Desc
}

// definitions are all metrics, in the order of docs/metrics.md.
var definitions []*metric

func define(kind, name, help string, labels ...string) *metric {
	m := &metric{name, kind, labels, help, prometheus.NewDesc(name, help, labels, nil)}
	definitions = append(definitions, m)
	return m
}

// Of the whole ledger: the same in each process that exports them.
var (
	readable = define(gauge, "taskledger_ledger_readable",
		"Whether the ledger could be read at this scrape. Without it the metrics of the ledger are missing.")
	conditions = define(gauge, "taskledger_conditions",
		"Conditions that hold and on which an operator should act, see docs/operations.md.", "condition")

	kindsSummed = define(gauge, "taskledger_kinds_summed",
		"Kinds without metrics of their own: after the first 100, they are summed as kind=\"(others)\".")
	tasks = define(gauge, "taskledger_tasks",
		"Tasks in each state, as projected.", "kind", "state")
	enqueued = define(counter, "taskledger_tasks_enqueued_total",
		"Tasks enqueued since the first scrape of this process, as projected.", "kind")
	started = define(counter, "taskledger_attempts_started_total",
		"Attempts begun since the first scrape of this process, as projected.", "kind")
	succeeded = define(counter, "taskledger_tasks_succeeded_total",
		"Tasks succeeded since the first scrape of this process, as projected.", "kind")
	failed = define(counter, "taskledger_attempts_failed_total",
		"Attempts failed since the first scrape of this process, as projected.", "kind")
	dead = define(counter, "taskledger_tasks_dead_total",
		"Tasks that became dead since the first scrape of this process, as projected.", "kind")
	cancelled = define(counter, "taskledger_tasks_cancelled_total",
		"Tasks cancelled since the first scrape of this process, as projected.", "kind")
	waiting = define(histogram, "taskledger_task_waiting_seconds",
		"Time from when a task became available to the beginning of its attempt. The sum is estimated to a tenth.",
		"kind")
	running = define(histogram, "taskledger_attempt_running_seconds",
		"Time that an attempt ran. The sum is estimated to a tenth.", "kind")
	oldestWaiting = define(gauge, "taskledger_oldest_waiting_task_seconds",
		"Time that the oldest available task has waited, of the 1,000 oldest unfinished tasks.", "kind")
	unhandled = define(gauge, "taskledger_unhandled_tasks",
		"Unfinished tasks of kinds without a live worker.", "kind")
	paused = define(gauge, "taskledger_kinds_paused",
		"Kinds that an operator has paused.")
	rejected = define(counter, "taskledger_enqueues_rejected_total",
		"Calls since the creation of the ledger that a limit has rejected.")

	relayLag = define(gauge, "taskledger_relay_lag_events",
		"Committed events that are not published, at most 10,000.")
	relayLagSeconds = define(gauge, "taskledger_relay_lag_seconds",
		"Age of the oldest committed event that is not published.")
	relayAlive = define(gauge, "taskledger_relay_alive",
		"Whether a relay holds a live lease.")
	dispatcherAlive = define(gauge, "taskledger_dispatcher_alive",
		"Whether a dispatcher holds a live lease.")
	dispatcherEpoch = define(gauge, "taskledger_dispatcher_epoch",
		"Number of the active dispatcher, or of the last one: it rises with each change.")
	relayInfo = define(gauge, "taskledger_relay_info",
		"The holder of the relay's lease. The value is 1.", "holder")
	parked = define(gauge, "taskledger_events_parked",
		"Events that cannot be published, at most 10,001.")
	generation = define(gauge, "taskledger_stream_generation",
		"Number of times that the stream has lost messages, plus 1.")
	streamMessages = define(gauge, "taskledger_stream_messages",
		"Messages on the stream.")
	streamBytes = define(gauge, "taskledger_stream_bytes",
		"Size of the stream.")
	streamMaxBytes = define(gauge, "taskledger_stream_max_bytes",
		"Greatest size of the stream. Missing: it has no limit.")

	projectionLag = define(gauge, "taskledger_projection_lag_events",
		"Committed events that the built-in projection has not applied, at most 10,000.")
	projectionLagSeconds = define(gauge, "taskledger_projection_lag_seconds",
		"Age of the oldest event that the built-in projection has not applied.")
	projectionParked = define(gauge, "taskledger_projection_parked_events",
		"Events that a projection has parked.", "projection")
	subscribersLeftOut = define(gauge, "taskledger_subscribers_left_out",
		"Subscribers without metrics of their own: those beyond the 100 that are the furthest behind.")
	subscriberLag = define(gauge, "taskledger_subscriber_lag_events",
		"Events that a subscriber of the feed has not passed, at most 10,000.", "subscriber")
	subscriberLagSeconds = define(gauge, "taskledger_subscriber_lag_seconds",
		"Age of the oldest event that a subscriber has not passed.", "subscriber")

	timersDue = define(gauge, "taskledger_timers_due",
		"Delays, retries and deadlines that are due and not fired.")
	timersLate = define(gauge, "taskledger_timers_late_seconds",
		"Time that the first of these timers has been due.")
	schedulesLate = define(gauge, "taskledger_schedules_late_seconds",
		"Time that the latest firing of a schedule has been due.")
	alarmsUndelivered = define(gauge, "taskledger_alarms_undelivered",
		"Receivers whose newest alarm is not delivered.")
	oldestTransaction = define(gauge, "taskledger_oldest_transaction_seconds",
		"Age of the oldest open write transaction of the database cluster. Vacuum waits for it, and no service does.")
)

// Of one process.
var (
	build = define(gauge, "taskledger_build_info",
		"The build of this process. The value is 1.", "version", "revision", "go_version")

	connections = define(gauge, "taskledger_database_connections",
		"Connections of a pool: acquired, idle or constructing.", "state")
	maxConnections = define(gauge, "taskledger_database_max_connections",
		"Greatest number of connections of a pool.")
	acquires = define(counter, "taskledger_database_acquires_total",
		"Connections taken from a pool.")
	acquireWaits = define(counter, "taskledger_database_acquire_waits_total",
		"Connections that were not available at once, so that a statement waited.")
	acquireWaitSeconds = define(counter, "taskledger_database_acquire_wait_seconds_total",
		"Time that statements waited for a connection.")

	natsConnected = define(gauge, "taskledger_nats_connected",
		"Whether the process is connected to NATS.")
	natsReconnects = define(counter, "taskledger_nats_reconnects_total",
		"Times that the connection to NATS was restored.")

	workerSlots = define(gauge, "taskledger_worker_slots",
		"Handlers of a kind that may run at once in this process.", "kind")
	workerRunning = define(gauge, "taskledger_worker_handlers_running",
		"Handlers of a kind that run in this process, the overdue ones included.", "kind")
	workerOverdue = define(gauge, "taskledger_worker_handlers_overdue",
		"Handlers of a kind that did not return in time.", "kind")
	workerInFlight = define(gauge, "taskledger_worker_in_flight_tasks",
		"Tasks of a kind that were offered to this process, and whose outcome is not recorded yet.", "kind")
	workerAttempts = define(counter, "taskledger_worker_attempts_total",
		"Attempts of a kind that have ended in this process.", "kind", "outcome")

	workerWaiting = define(histogram, "taskledger_worker_task_waiting_seconds",
		"Time from when a task became available to the beginning of its attempt in this process.", "kind")
	workerRan = define(histogram, "taskledger_worker_attempt_running_seconds",
		"Time that an attempt ran in this process, with hooks and the recording of its outcome.", "kind")
)
