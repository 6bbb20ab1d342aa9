package health

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/relays"
)

// Name identifies a condition. Names are stable: monitors may depend on them.
type Name string

// The conditions. [Definitions] returns their meanings and cures.
const (
	RelayStopped      Name = "relay_stopped"
	RelayRefused      Name = "relay_refused"
	RelayBlocked      Name = "relay_blocked"
	RelayLag          Name = "relay_lag"
	StreamWrites      Name = "stream_writes_failed"
	EventsParked      Name = "events_parked"
	StreamUnavailable Name = "stream_unavailable"
	StreamDrift       Name = "stream_drift"
	ReplicaBehind     Name = "replica_behind"
	ConsumerLate      Name = "consumer_late"
	DispatcherStopped Name = "dispatcher_stopped"
	ProjectionLag     Name = "projection_lag"
	ProjectorRefused  Name = "projector_refused"
	SubscriberFailed  Name = "subscriber_failed"
	SubscriberParked  Name = "subscriber_parked"
	EventsIllegal     Name = "events_illegal"
	TimersLate        Name = "timers_late"
	ScheduleLate      Name = "schedule_late"
	KindUnhandled     Name = "kind_unhandled"
	OperationOpen     Name = "operation_open"
	TasksUnbegun      Name = "tasks_unbegun"
	AttemptsRepeated  Name = "attempts_repeated"
	SnoozedInARow     Name = "snoozed_in_a_row"
	LinesStopped      Name = "lines_stopped"
	StartsHeld        Name = "starts_held"
	ArchiveHeld       Name = "archive_held"
	ArchiveStopped    Name = "archive_stopped"
	AlarmUndelivered  Name = "alarm_undelivered"
	SubscriberBehind  Name = "subscriber_behind"
	WebhookStopped    Name = "webhook_stopped"
)

// Condition is a condition that holds.
type Condition struct {
	Name      Name          `json:"name"`
	About     string        `json:"about,omitempty"` // the schedule, alarm, subscriber or receiver
	Since     time.Time     `json:"since,omitzero"`  // when it began; zero: unknown
	Threshold time.Duration `json:"-"`               // the threshold that is exceeded; 0: none
	Text      string        `json:"text"`            // one line, printable
	Cure      string        `json:"cure"`            // a command or a sentence
}

// MarshalJSON adds threshold_ms.
func (c Condition) MarshalJSON() ([]byte, error) {
	type plain Condition
	return json.Marshal(struct {
		plain
		ThresholdMS int64 `json:"threshold_ms,omitempty"`
	}{plain(c), c.Threshold.Milliseconds()})
}

// IsCritical reports whether the condition stops all work.
func (c Condition) IsCritical() bool {
	d, _ := Define(c.Name)
	return d.IsCritical
}

// Definition describes a condition.
type Definition struct {
	Name       Name
	IsCritical bool          // no event is published, no task begins, or none is projected
	Threshold  time.Duration // default; 0: none
	Meaning    string
	Cure       string
	End        string // the sentence of an alarm when the condition has ended; "": no alarm reports the condition
}

// Definitions returns the definitions of all conditions, in the order of a [Report]. It is the one table of conditions:
// probes, alarms, deploy/prometheus/rules.yml and docs/operations.md agree with it.
func Definitions() []Definition {
	return append([]Definition(nil), definitions...)
}

// Define returns the definition of a condition, and false if there is no such condition.
func Define(name Name) (Definition, bool) {
	i := slices.IndexFunc(definitions, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return definitions[i], true
}

// Critical returns the names of the critical conditions.
func Critical() (names []Name) {
	for _, d := range definitions {
		if d.IsCritical {
			names = append(names, d.Name)
		}
	}
	return names
}

const (
	// usualThreshold is longer than the successor of a killed process needs to take over.
	usualThreshold = 30 * time.Second
	// relayThreshold is shorter: the successor of a killed relay takes over within a second.
	relayThreshold = 1250 * time.Millisecond
	// archiveThreshold is longer than the time between two runs of the archive of serve.
	archiveThreshold = 2 * time.Hour
	// subscriberThreshold leaves time for a pause.
	subscriberThreshold = time.Hour
)

var definitions = []Definition{
	{
		Name:       RelayStopped,
		IsCritical: true,
		Meaning:    "No relay is running. Events wait in the ledger.",
		Cure:       "start a relay: taskledger serve",
	},
	{
		Name:       RelayRefused,
		IsCritical: true,
		Meaning:    "The relay has stopped for the reason in the text, and waits for an operator.",
		Cure: "follow the text, with docs/recovery.md and Cures in docs/operations.md; the relay then continues by " +
			"itself",
	},
	{
		Name:       RelayBlocked,
		IsCritical: true,
		Meaning:    "The relay is running but cannot publish, for the reason in the text.",
		Cure:       "fix the cause in the text; the log of serve has details",
	},
	{
		Name:       StreamWrites,
		IsCritical: true,
		Meaning:    "NATS is connected, but JetStream stores no messages. Its disk may be full or slow.",
		Cure:       "free space on the NATS server's disk, then restart it; serve restarts its own",
	},
	{
		Name:      RelayLag,
		Threshold: relayThreshold,
		Meaning:   "An event has been waiting to be published.",
		Cure:      "is a relay running? start: taskledger serve",
		End:       "the relay has caught up",
	},
	{
		Name:    EventsParked,
		Meaning: "Events that cannot be published are parked; others are not delayed.",
		Cure:    relays.ParkedCure,
	},
	{
		Name:       StreamUnavailable,
		IsCritical: true,
		Meaning:    "The state of the stream cannot be read.",
		Cure: "is NATS running with JetStream? check NATS_URL and its credentials; without NATS_URL, see the log " +
			"of taskledger serve, which runs NATS",
	},
	{
		Name:    StreamDrift,
		Meaning: "The stream's settings, other than its limits, differ from the configuration.",
		Cure: "if the installation differs, see relay_refused; otherwise: nats stream edit LEDGER, or: taskledger " +
			"rebuild stream",
	},
	{
		Name:    ReplicaBehind,
		Meaning: "A member of the NATS cluster is down or behind. If one more fails, the stream stops.",
		Cure:    "start the member's NATS server, or its process of serve --peers; if it is running, read its log",
	},
	{
		Name:    ConsumerLate,
		Meaning: "A durable consumer has fallen behind the oldest message of the stream: it may have missed events.",
		Cure: "start its program, or: nats consumer rm LEDGER NAME; programs that must miss nothing read the " +
			"ledger: docs/subscribers.md",
	},
	{
		Name:       ProjectorRefused,
		IsCritical: true,
		Meaning:    "The projector has stopped for the reason in the text, and waits for an operator.",
		Cure: "taskledger rebase --yes; the projector then continues by itself; for a copy whose original stays in " +
			"use: its own NATS account, then there: taskledger rebase --yes --new-installation",
	},
	{
		Name:    SubscriberFailed,
		Meaning: "A subscriber keeps failing on the event in the text. It handles no later events.",
		Cure: "fix its program, and raise Tables.Version if its tables are wrong; or: " +
			"taskledger discard parked --subscriber NAME KIND BIZ_ID",
	},
	{
		Name:    SubscriberParked,
		Meaning: "A subscriber has parked events that it cannot handle, and later events of their tasks.",
		Cure: "taskledger show parked --subscriber NAME; fix the program, " +
			"then: taskledger retry parked --subscriber NAME KIND BIZ_ID; " +
			"or: taskledger discard parked --subscriber NAME KIND BIZ_ID",
	},
	{
		Name:    EventsIllegal,
		Meaning: "Events are not allowed after those before them. Their tasks are shown without them.",
		Cure: "revoke INSERT on the table event, or membership in its owner, from the role that wrote them, then: " +
			"taskledger discard illegal KIND BIZ_ID",
	},
	{
		Name:       DispatcherStopped,
		IsCritical: true,
		Meaning:    "No dispatcher is running. Only workers that claim tasks in SQL start any. No task is lost.",
		Cure:       "start a dispatcher: taskledger serve; if one is running, its log shows the reason",
	},
	{
		Name:      ProjectionLag,
		Threshold: usualThreshold,
		Meaning:   "An event has been waiting to be projected: lists and counts are out of date.",
		Cure:      "is a projector running? start: taskledger serve",
		End:       "the projection has caught up",
	},
	{
		Name:      TimersLate,
		Threshold: usualThreshold,
		Meaning:   "A delayed task, a retry or a deadline is overdue.",
		Cure: "is a scheduler running? start: taskledger serve; if one is, its log shows an error, a task locked " +
			"by an open transaction, or a slow poll",
		End: "timers fire on time",
	},
	{
		Name:      ScheduleLate,
		Threshold: usualThreshold,
		Meaning:   "A schedule's firing is overdue.",
		Cure: "is the schedule service running? start: taskledger serve; if it is, its log shows an error, or that " +
			"an open transaction has enqueued the task",
		End: "the schedule fires on time",
	},
	{
		Name:      KindUnhandled,
		Threshold: usualThreshold,
		Meaning:   "Tasks of a kind are available or running, but no live worker handles the kind.",
		Cure: "start the program that registers the kind; if its process exists, it hangs or cannot reach the " +
			"database: restart it (lost workers: taskledger show workers); or: taskledger cancel --kind KIND",
	},
	{
		Name:    OperationOpen,
		Meaning: "A rebuild has made no progress for a minute, or a replay began an hour ago, and has not ended.",
		Cure: "if no process is working on it, run the same command again, which ends the record (rebuilding a " +
			"subscriber needs its program); or: taskledger cancel taskledger.operation BIZ_ID",
	},
	{
		Name:      TasksUnbegun,
		Threshold: usualThreshold,
		Meaning:   "A task of a kind that is not paused is available, but live workers have not started it.",
		Cure: "see whether the kind has free slots: taskledger show workers; if not, give it more slots or more " +
			"workers, and restart workers with overdue handlers, which occupy slots; if so, read the workers' log, " +
			"and restart a worker that starts nothing; at a limit: taskledger limit NAME --concurrency N or --rate N/m",
	},
	{
		Name: AttemptsRepeated,
		Meaning: "Attempts at a task repeatedly end with an error of the ledger's database, without an event. From " +
			"the eleventh in a row on, each counts as a failure.",
		Cure: "fix the handler or the database, by the error in the text, or: taskledger bury KIND BIZ_ID",
	},
	{
		Name: SnoozedInARow,
		Meaning: "A handler has snoozed its task five times in a row, for less than a second or until a time in " +
			"the past. Each attempt adds events.",
		Cure: "fix the time that the handler returns, or: taskledger bury KIND BIZ_ID",
	},
	{
		Name:    LinesStopped,
		Meaning: "Lines of tasks with order keys stand, because the task whose turn it is is dead.",
		Cure: "fix the cause, then: taskledger release KIND BIZ_ID; to go on without the task, also: taskledger " +
			"cancel KIND BIZ_ID",
	},
	{
		Name:      StartsHeld,
		Threshold: usualThreshold,
		Meaning: "An open transaction holds permits, tokens, a limit or the turns of all lines. Tasks that need " +
			"these do not begin.",
		Cure: "end the transaction that the text names",
	},
	{
		Name:      ArchiveHeld,
		Threshold: archiveThreshold,
		Meaning: "A reader of the feed has not read finished tasks that are due to be archived, so the tables " +
			"grow; subscribers and the relay hold tasks for at most archive --hold.",
		Cure: "start the reader that the text names, or read its log; if a subscriber is no longer needed: " +
			"taskledger delete subscriber NAME",
	},
	{
		Name:      ArchiveStopped,
		Threshold: archiveThreshold,
		Meaning:   "Runs of the archive have begun, but neither ended nor removed tasks.",
		Cure:      "read the log of serve, or run: taskledger archive, which reports the error",
	},
	{
		Name:    AlarmUndelivered,
		Meaning: "A receiver's newest alarm could not be delivered. No alarm reports this.",
		Cure:    "fix the receiver's settings, then try them: taskledger test alarms --alarms FILE RECEIVER",
	},
	{
		Name:      SubscriberBehind,
		Threshold: subscriberThreshold,
		Meaning: "A subscriber of the feed is behind. It delays no other, but the archive must not remove events " +
			"that it has not read.",
		Cure: "start its program, or read its log; if it is paused: taskledger resume subscriber NAME; if it is no " +
			"longer needed: taskledger delete subscriber NAME",
	},
	{
		Name:      WebhookStopped,
		Threshold: usualThreshold,
		Meaning: "Events wait for a webhook receiver: no process serves it, its subscriber was deleted or has " +
			"stopped, or it answered 410 Gone.",
		Cure: "start: taskledger serve webhooks, or read its log; after 410: taskledger resume kind " +
			"taskledger.webhook.NAME; if it is no longer needed: taskledger delete subscriber webhook-NAME",
	},
}
