package health

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/taskledger/taskledger/outbox"
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
	ProjectionFailed  Name = "projection_failed"
	ProjectionParked  Name = "projection_parked"
	EventsIllegal     Name = "events_illegal"
	TimersLate        Name = "timers_late"
	ScheduleLate      Name = "schedule_late"
	KindUnhandled     Name = "kind_unhandled"
	OperationOpen     Name = "operation_open"
	TasksUnbegun      Name = "tasks_unbegun"
	AttemptsRepeated  Name = "attempts_repeated"
	SnoozedInARow     Name = "snoozed_in_a_row"
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
	// subscriberThreshold leaves time for a pause.
	subscriberThreshold = time.Hour
)

var definitions = []Definition{
	{
		Name:       RelayStopped,
		IsCritical: true,
		Meaning:    "No relay runs. Events wait in the ledger.",
		Cure:       "start a relay: taskledger serve",
	},
	{
		Name:       RelayRefused,
		IsCritical: true,
		Meaning:    "The relay must not continue before an operator has acted, for the reason in the text.",
		Cure: "follow the text; docs/recovery.md and Cures in docs/operations.md have the steps; " +
			"the relay then continues by itself",
	},
	{
		Name:       RelayBlocked,
		IsCritical: true,
		Meaning:    "A relay runs and cannot publish, for the reason in the text.",
		Cure:       "remove the reason; the log of serve shows details",
	},
	{
		Name:       StreamWrites,
		IsCritical: true,
		Meaning:    "NATS is connected, and JetStream does not store messages. Its disk may be full or slow.",
		Cure: "make room on the disk of the NATS server and restart it, since it refuses messages until then; " +
			"serve restarts its own NATS server when there is room",
	},
	{
		Name:      RelayLag,
		Threshold: relayThreshold,
		Meaning:   "An event has waited longer than the threshold to be published.",
		Cure:      "is a relay running? start: taskledger serve",
		End:       "the relay has caught up",
	},
	{
		Name:    EventsParked,
		Meaning: "Events cannot be published, and are parked. They delay no other event.",
		Cure:    outbox.ParkedCure,
	},
	{
		Name:       StreamUnavailable,
		IsCritical: true,
		Meaning:    "The state of the stream LEDGER cannot be read.",
		Cure: "is NATS running with JetStream? check NATS_URL and its credentials; without NATS_URL see the log of " +
			"taskledger serve, which runs it",
	},
	{
		Name: StreamDrift,
		Meaning: "Settings of the stream differ from the configuration, except for its limits. " +
			"The relay only raises the limit in bytes of an existing stream.",
		Cure: "if the installation differs, see relay_refused; else nats stream edit LEDGER, " +
			"or: taskledger rebuild stream",
	},
	{
		Name:    ReplicaBehind,
		Meaning: "A member of the NATS cluster is away or lacks messages. Without another one the stream stops.",
		Cure:    "start the NATS server of this member, with serve --peers its process; see its log if it runs",
	},
	{
		Name: ConsumerLate,
		Meaning: "A durable consumer of the stream LEDGER has messages to receive, and its place is before the " +
			"oldest message: it may have missed events.",
		Cure: "start its program, or: nats consumer rm LEDGER NAME; a program that must not miss an event reads the " +
			"ledger: docs/subscribers.md",
	},
	{
		Name:       ProjectorRefused,
		IsCritical: true,
		Meaning:    "The projector must not continue before an operator has acted, for the reason in the text.",
		Cure: "taskledger rebase --yes; the projector then continues by itself; if the original of a copy goes on: " +
			"another NATS account for the copy, then there: taskledger rebase --yes --new-installation",
	},
	{
		Name:    ProjectionFailed,
		Meaning: "A projection cannot apply the event in the text, which it tries again. Its tables are late.",
		Cure: "correct the program that runs it, and give it a higher Version if its tables are wrong; or: " +
			"taskledger discard parked --projection NAME KIND BIZ_ID",
	},
	{
		Name:    ProjectionParked,
		Meaning: "A projection has parked events that it cannot apply, and later ones of their tasks.",
		Cure: "taskledger show parked --projection NAME; correct the program, " +
			"then: taskledger retry parked --projection NAME KIND BIZ_ID; or: " +
			"taskledger discard parked --projection NAME KIND BIZ_ID",
	},
	{
		Name:    EventsIllegal,
		Meaning: "Events cannot follow those before them. Their tasks are listed as before these events.",
		Cure: "take INSERT on the table event, or membership in its owner, from the role that wrote them, " +
			"then: taskledger dismiss illegal KIND BIZ_ID",
	},
	{
		Name:       DispatcherStopped,
		IsCritical: true,
		Meaning:    "No dispatcher runs. Only tasks that workers claim in SQL begin. No task is lost.",
		Cure:       "start a dispatcher: taskledger serve; if one runs, its log shows the reason",
	},
	{
		Name:      ProjectionLag,
		Threshold: usualThreshold,
		Meaning:   "An event has waited longer than the threshold to be projected: lists and counts are late.",
		Cure:      "is a projector running? start: taskledger serve",
		End:       "the projection has caught up",
	},
	{
		Name:      TimersLate,
		Threshold: usualThreshold,
		Meaning:   "A delay, a retry or a deadline has been due for longer than the threshold.",
		Cure: "is a scheduler running? start: taskledger serve; " +
			"if one is, its log shows its error, a task that an open transaction locks, or a slow poll",
		End: "timers fire in time",
	},
	{
		Name:      ScheduleLate,
		Threshold: usualThreshold,
		Meaning:   "A firing of a schedule has been due for longer than the threshold.",
		Cure: "is a runner of schedules running? start: taskledger serve; " +
			"if one is, its log shows the schedule's error, or the task that an open transaction has enqueued",
		End: "the schedule fires in time",
	},
	{
		Name:      KindUnhandled,
		Threshold: usualThreshold,
		Meaning: "Tasks of a kind have been available or running for longer than the threshold, " +
			"and no live worker handles the kind.",
		Cure: "start the program that registers the kind, or: taskledger cancel --kind KIND",
	},
	{
		Name: OperationOpen,
		Meaning: "A rebuild or a replay on record has not ended, and its process has shown no progress: " +
			"for a minute, or a replay for an hour since its beginning.",
		Cure: "if no process works on it, do the act again, with the same command, which ends the record; " +
			"a rebuild of a projection of yours needs the program that runs it; " +
			"or: taskledger cancel taskledger.operation BIZ_ID",
	},
	{
		Name:      TasksUnbegun,
		Threshold: usualThreshold,
		Meaning: "A task has been available for longer than the threshold, and the live workers of its kind, " +
			"which is not paused, have not begun it.",
		Cure: "give the kind more slots or more workers; if taskledger show workers shows overdue handlers, they " +
			"hold slots: restart these workers, and correct the handlers; if slots are free, read the workers' log; " +
			"restart a worker whose lease is renewed and that begins nothing",
	},
	{
		Name: AttemptsRepeated,
		Meaning: "Attempts at a task end repeatedly with an error of the ledger's database, without an event. " +
			"After ten in a row each further one is a failure by the task's policy.",
		Cure: "correct the handler or the database by the error in the text, or: taskledger bury KIND BIZ_ID",
	},
	{
		Name: SnoozedInARow,
		Meaning: "A handler has snoozed its task five times in a row for less than a second, or until a time that " +
			"is not in the future. Each attempt adds events to the ledger.",
		Cure: "correct the time that the handler returns, or: taskledger bury KIND BIZ_ID",
	},
	{
		Name:    AlarmUndelivered,
		Meaning: "The newest alarm of a receiver has failed and is not delivered. No alarm reports this.",
		Cure:    "correct the receiver's settings, then try them: taskledger test alarms --alarms FILE RECEIVER",
	},
	{
		Name:      SubscriberBehind,
		Threshold: subscriberThreshold,
		Meaning: "A subscriber of the feed has not passed an event for longer than the threshold. It holds up no " +
			"other one. Events that it needs must not be archived.",
		Cure: "start its program, or read its log; if it is paused: taskledger resume subscriber NAME; " +
			"if it is not needed: taskledger delete subscriber NAME",
	},
	{
		Name:      WebhookStopped,
		Threshold: usualThreshold,
		Meaning: "A receiver of webhooks has got no event that waits for it for longer than the threshold: no " +
			"process has it, its subscriber was deleted or must not continue, or it has answered 410 Gone.",
		Cure: "start: taskledger serve webhooks, or read its log; after 410: taskledger resume kind " +
			"taskledger.webhook.NAME; if it is not needed: taskledger delete subscriber webhook-NAME",
	},
}
