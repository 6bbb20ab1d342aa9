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

// definitions are all metrics.
var definitions []*metric

func define(kind, name, help string, labels ...string) *metric {
	m := &metric{name, kind, labels, help, prometheus.NewDesc(name, help, labels, nil)}
	definitions = append(definitions, m)
	return m
}

// Of the whole ledger: the same in each process that exports them.
var (
	readable = define(gauge, "taskledger_ledger_readable",
		"1 if this scrape could read the ledger. If 0, the ledger's metrics are missing.")
	conditions = define(gauge, "taskledger_conditions",
		"Conditions that hold and need an operator, see docs/operations.md.", "condition")

	kindsSummed = define(gauge, "taskledger_kinds_summed",
		"Kinds beyond the first 100, which are summed as kind=\"(others)\".")
	tasks = define(gauge, "taskledger_tasks",
		"Tasks by state, as projected.", "kind", "state")
	enqueued = define(counter, "taskledger_tasks_enqueued_total",
		"Tasks enqueued since the first scrape.", "kind")
	started = define(counter, "taskledger_attempts_started_total",
		"Attempts started since the first scrape.", "kind")
	succeeded = define(counter, "taskledger_tasks_succeeded_total",
		"Tasks that succeeded since the first scrape.", "kind")
	failed = define(counter, "taskledger_attempts_failed_total",
		"Attempts that failed since the first scrape.", "kind")
	dead = define(counter, "taskledger_tasks_dead_total",
		"Tasks that died since the first scrape.", "kind")
	cancelled = define(counter, "taskledger_tasks_cancelled_total",
		"Tasks cancelled since the first scrape.", "kind")
	waiting = define(histogram, "taskledger_task_waiting_seconds",
		"Time from a task becoming available to the start of its attempt. The sum is an estimate, within a tenth.",
		"kind")
	running = define(histogram, "taskledger_attempt_running_seconds",
		"Duration of an attempt. The sum is an estimate, within a tenth.", "kind")
	oldestWaiting = define(gauge, "taskledger_oldest_waiting_task_seconds",
		"How long the oldest available task has been waiting, among the 1,000 oldest unfinished tasks.", "kind")
	unhandled = define(gauge, "taskledger_unhandled_tasks",
		"Unfinished tasks of kinds without a live worker.", "kind")
	paused = define(gauge, "taskledger_kinds_paused",
		"Kinds that an operator has paused.")
	concurrencyLimit = define(gauge, "taskledger_concurrency_limit",
		"How many of the tasks of a limit may run at a time. Missing if any number may, and for a limit per value.",
		"limit")
	permitsInUse = define(gauge, "taskledger_permits_in_use",
		"Running tasks of a limit, over all its values.", "limit")
	limitWaiting = define(gauge, "taskledger_limit_waiting_tasks",
		"Available tasks of the kinds of a limit.", "limit")
	stoppedLines = define(gauge, "taskledger_lines_stopped",
		"Lines of tasks with order keys that stand because of a dead task, at most 100.")
	archiveHeld = define(gauge, "taskledger_archive_held_tasks",
		"Finished tasks that the last run of the archive left in the tables, because a reader of the feed holds them.")
	archiveOldest = define(gauge, "taskledger_archive_overdue_seconds",
		"How long before the last run of the archive the oldest of these tasks should have been archived.")
	rejected = define(counter, "taskledger_enqueues_rejected_total",
		"Calls rejected by a limit since the ledger was created.")

	relayLag = define(gauge, "taskledger_relay_lag_events",
		"Committed events not yet published, at most 10,000.")
	relayLagSeconds = define(gauge, "taskledger_relay_lag_seconds",
		"Age of the oldest committed event not yet published.")
	relayAlive = define(gauge, "taskledger_relay_alive",
		"1 if a relay holds a live lease.")
	dispatcherAlive = define(gauge, "taskledger_dispatcher_alive",
		"1 if a dispatcher holds a live lease.")
	dispatcherEpoch = define(gauge, "taskledger_dispatcher_epoch",
		"Number of the current or last dispatcher, which rises with each change.")
	relayInfo = define(gauge, "taskledger_relay_info",
		"The holder of the relay's lease. Always 1.", "holder")
	parked = define(gauge, "taskledger_events_parked",
		"Parked events, which cannot be published, at most 10,001.")
	generation = define(gauge, "taskledger_stream_generation",
		"One more than the number of times the stream has lost messages.")
	streamMessages = define(gauge, "taskledger_stream_messages",
		"Messages in the stream.")
	streamBytes = define(gauge, "taskledger_stream_bytes",
		"Size of the stream in bytes.")
	streamMaxBytes = define(gauge, "taskledger_stream_max_bytes",
		"Size limit of the stream in bytes. Missing if it has none.")

	projectionLag = define(gauge, "taskledger_projection_lag_events",
		"Committed events not yet applied by the built-in projection, at most 10,000.")
	projectionLagSeconds = define(gauge, "taskledger_projection_lag_seconds",
		"Age of the oldest event not yet applied by the built-in projection.")
	subscriberParked = define(gauge, "taskledger_subscriber_parked_events",
		"Events parked by a subscriber.", "subscriber")
	subscribersLeftOut = define(gauge, "taskledger_subscribers_left_out",
		"Subscribers without metrics: all but the 100 that are furthest behind.")
	subscriberLag = define(gauge, "taskledger_subscriber_lag_events",
		"Events not yet processed by a subscriber of the feed, at most 10,000.", "subscriber")
	subscriberLagSeconds = define(gauge, "taskledger_subscriber_lag_seconds",
		"Age of the oldest event not yet processed by a subscriber.", "subscriber")

	timersDue = define(gauge, "taskledger_timers_due",
		"Delays, retries and deadlines that are due but have not fired.")
	timersLate = define(gauge, "taskledger_timers_late_seconds",
		"How long the oldest of these timers has been due.")
	schedulesLate = define(gauge, "taskledger_schedules_late_seconds",
		"How long the most overdue schedule has been due.")
	alarmsUndelivered = define(gauge, "taskledger_alarms_undelivered",
		"Receivers whose newest alarm could not be delivered.")
	oldestTransaction = define(gauge, "taskledger_oldest_transaction_seconds",
		"Age of the oldest open write transaction in the database cluster. It holds up vacuum, but no service.")
)

// Of one process.
var (
	build = define(gauge, "taskledger_build_info",
		"This process's build. Always 1.", "version", "revision", "go_version")

	connections = define(gauge, "taskledger_database_connections",
		"Connections of a pool: acquired, idle or constructing.", "state")
	maxConnections = define(gauge, "taskledger_database_max_connections",
		"Maximum number of connections of a pool.")
	acquires = define(counter, "taskledger_database_acquires_total",
		"Connections taken from a pool.")
	acquireWaits = define(counter, "taskledger_database_acquire_waits_total",
		"Times a statement had to wait for a connection.")
	acquireWaitSeconds = define(counter, "taskledger_database_acquire_wait_seconds_total",
		"Time statements spent waiting for a connection.")

	natsConnected = define(gauge, "taskledger_nats_connected",
		"1 if the process is connected to NATS.")
	natsReconnects = define(counter, "taskledger_nats_reconnects_total",
		"Times the process has reconnected to NATS.")

	workerSlots = define(gauge, "taskledger_worker_slots",
		"Handlers of a kind that this process may run at a time.", "kind")
	workerRunning = define(gauge, "taskledger_worker_handlers_running",
		"Handlers of a kind now running in this process, including overdue ones.", "kind")
	workerOverdue = define(gauge, "taskledger_worker_handlers_overdue",
		"Handlers of a kind that have not returned in time.", "kind")
	workerInFlight = define(gauge, "taskledger_worker_in_flight_tasks",
		"Tasks of a kind offered to this process whose outcome is not yet recorded.", "kind")
	workerAttempts = define(counter, "taskledger_worker_attempts_total",
		"Attempts of a kind that have ended in this process.", "kind", "outcome")

	workerWaiting = define(histogram, "taskledger_worker_task_waiting_seconds",
		"Time from a task becoming available to the start of its attempt in this process.", "kind")
	workerRan = define(histogram, "taskledger_worker_attempt_running_seconds",
		"Duration of an attempt in this process, including hooks and recording its outcome.", "kind")
)
