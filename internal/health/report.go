package health

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/schedules"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/now.sql
var nowSQL string

// Report is the state of the ledger's services: the conditions that hold, and the numbers from which [Read] derived
// them. Numbers that were not read are zero, see [Config].Only.
type Report struct {
	At         time.Time         `json:"at"`         // by the database's clock
	PostgreSQL string            `json:"postgresql"` // its version
	Schema     int64             `json:"schema"`     // number of the last migration that is applied
	Outbox     relays.Status     `json:"outbox"`
	Projection Projection        `json:"projection"`
	Dispatcher dispatcher.Status `json:"dispatcher"`
	// Subscribers are at most 100 subscribers of the feed, the furthest behind, by name. Consumers of the stream are in
	// Outbox.
	Subscribers      []subscribers.Subscriber `json:"subscribers"`
	SubscribersTotal int                      `json:"subscribers_total"`
	// SubscriberStates are the subscribers with tables or that park events, by name.
	SubscriberStates []subscribers.State `json:"subscriber_states"`

	Timers    scheduler.TimerStatus    `json:"timers"`
	Schedules schedules.Summary        `json:"schedules"`
	Tasks     []ledger.StateCount      `json:"tasks"`
	Rejected  int64                    `json:"rejected"`  // calls that were rejected because too many tasks waited
	Unhandled []operator.UnhandledKind `json:"unhandled"` // kinds with available tasks and no live worker
	Unbegun   []operator.UnbegunKind   `json:"unbegun"`   // kinds whose live workers do not begin their oldest tasks
	Paused    []operator.PausedKind    `json:"paused"`
	// StoppedLines are lines that stand because of a dead task, at most 100.
	StoppedLines []operator.StoppedLine `json:"stopped_lines,omitempty"`
	Archive      *archiver.State        `json:"archive,omitempty"` // nil: nothing was archived
	Alarms       []UndeliveredAlarm     `json:"undelivered_alarms"`
	Degraded     []Condition            `json:"degraded"` // the conditions that hold; empty: healthy
}

// check reads the numbers of some conditions into a report, and adds the conditions that hold.
type check struct {
	names []Name // none: the check only reads numbers
	run   func(context.Context, Config, *Report) error
}

var checks = []check{
	{[]Name{
		RelayStopped, RelayRefused, RelayBlocked, StreamWrites, RelayLag, EventsParked,
		StreamUnavailable, StreamDrift, ReplicaBehind, ConsumerLate,
	}, checkOutbox},
	{[]Name{DispatcherStopped}, checkDispatcher},
	{[]Name{ProjectorRefused, ProjectionLag}, checkProjection},
	{[]Name{SubscriberFailed, SubscriberParked, SubscriberBehind}, checkStates},
	{[]Name{EventsIllegal}, checkIllegal},
	{[]Name{TimersLate}, checkTimers},
	{[]Name{ScheduleLate}, checkSchedules},
	{[]Name{KindUnhandled}, checkKinds},
	{[]Name{OperationOpen}, checkOperations},
	{[]Name{TasksUnbegun}, checkUnbegun},
	{[]Name{AttemptsRepeated, SnoozedInARow}, checkRepeated},
	{[]Name{LinesStopped}, checkLines},
	{[]Name{StartsHeld}, checkStarts},
	{[]Name{ArchiveHeld, ArchiveStopped}, checkArchive},
	{[]Name{AlarmUndelivered}, checkAlarms},
	{[]Name{SubscriberBehind}, checkSubscribers},
	{[]Name{WebhookStopped}, checkWebhooks},
	{nil, readCounts},
}

// Read returns a report. It only reads, in several statements, and never commits. Its cost does not grow with the
// number of tasks. An unavailable stream is a condition, not an error.
//
// Schedules and subscribers have at most 100 conditions each, for the most overdue ones. Receivers
// of webhooks have at most 100. One more condition, with an empty About, counts the others.
//
// Errors: invalid fields of c, [ledger.ErrUnavailable], [ledger.ErrNotMigrated].
func Read(ctx context.Context, c Config) (Report, error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	c = c.withThresholds()
	if c.Numbers == nil {
		c.Numbers = &Numbers{}
	}
	r := Report{
		Tasks: []ledger.StateCount{}, Unhandled: []operator.UnhandledKind{}, Unbegun: []operator.UnbegunKind{},
		Paused: []operator.PausedKind{},
		Alarms: []UndeliveredAlarm{}, Degraded: []Condition{},
		Subscribers: []subscribers.Subscriber{}, SubscriberStates: []subscribers.State{},
	}
	if _, err := pgquery.Row(ctx, c.DB, nowSQL, nil, pgquery.Micros(&r.At), &r.PostgreSQL, &r.Schema); err != nil {
		return Report{}, pgerr.Explain("read the time", err)
	}
	for _, check := range checks {
		if !c.needs(check) {
			continue
		}
		if err := check.run(ctx, c, &r); err != nil {
			return Report{}, err
		}
	}
	if c.Only != nil {
		r.Degraded = slices.DeleteFunc(r.Degraded, func(held Condition) bool {
			return !slices.Contains(c.Only, held.Name)
		})
	}
	return r, nil
}

// needs reports whether the report includes a condition of a check.
func (c Config) needs(check check) bool {
	return c.Only == nil ||
		slices.ContainsFunc(check.names, func(name Name) bool { return slices.Contains(c.Only, name) })
}

// add adds a condition that holds. It completes the condition from its definition; a cure that is set stays.
func (r *Report) add(c Condition) {
	if c.Cure == "" {
		d, _ := Define(c.Name)
		c.Cure = d.Cure
	}
	c.Text = printable.Text(c.Text)
	r.Degraded = append(r.Degraded, c)
}
