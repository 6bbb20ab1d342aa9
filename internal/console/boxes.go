package console

import (
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/reserved"
)

// service is a box on the page System. Its state is the worst of its conditions and checks.
type service struct {
	Level level
	Why   string // as in level; "" for ok
}

// The services on the page System.
const (
	boxDatabase    = "PostgreSQL"
	boxRelay       = "Relay"
	boxStream      = "Stream"
	boxSubscribers = "Subscribers"
	boxProjector   = "Projector"
	boxScheduler   = "Scheduler"
	boxDispatcher  = "Dispatcher"
	boxWorkers     = "Workers"
)

// conditionBoxes are the services to which conditions belong. Operations and alarms have none.
var conditionBoxes = map[health.Name]string{
	health.RelayStopped: boxRelay, health.RelayRefused: boxRelay, health.RelayBlocked: boxRelay,
	health.RelayLag: boxRelay, health.EventsParked: boxRelay,
	health.StreamWrites: boxStream, health.StreamUnavailable: boxStream, health.StreamDrift: boxStream,
	health.ReplicaBehind: boxStream, health.ConsumerLate: boxStream,
	health.SubscriberFailed: boxSubscribers, health.SubscriberParked: boxSubscribers,
	health.SubscriberBehind: boxSubscribers, health.WebhookStopped: boxSubscribers,
	health.ProjectionLag: boxProjector, health.ProjectorRefused: boxProjector, health.EventsIllegal: boxProjector,
	health.TimersLate: boxScheduler, health.ScheduleLate: boxScheduler,
	health.DispatcherStopped: boxDispatcher, health.StartsHeld: boxDispatcher,
	health.KindUnhandled: boxWorkers, health.TasksUnbegun: boxWorkers, health.AttemptsRepeated: boxWorkers,
	health.SnoozedInARow: boxWorkers, health.LinesStopped: boxWorkers,
	health.ArchiveHeld: boxDatabase, health.ArchiveStopped: boxDatabase,
}

// checkBoxes are the services to which checks belong, other than PostgreSQL; "": none.
var checkBoxes = map[string]string{"nats": boxStream, "max_payload": boxStream, "stream": boxStream,
	"workers": boxWorkers, "schedules": boxScheduler, conditionsCheck: ""}

// addBoxes sets the states of the services.
func (d *systemData) addBoxes() {
	d.services = map[string]service{}
	add := func(name string, l level, why string) {
		if old, isKnown := d.services[name]; !isKnown || compareLevels(l, old.Level) < 0 {
			d.services[name] = service{l, why}
		}
	}
	for _, c := range d.Degraded {
		add(conditionBoxes[c.Name], levelOf(c), c.Text)
	}
	for _, c := range d.Bad {
		name, isKnown := checkBoxes[c.Name]
		if !isKnown {
			name = boxDatabase
		}
		add(name, c.level(), c.Name+": "+c.Text)
	}
	var waiting []unhandledKind
	for _, u := range d.Unhandled {
		if !u.IsDue && !reserved.IsKind(u.Kind) {
			waiting = append(waiting, unhandledKind{Kind: u.Kind, Available: u.Waiting, Waited: waited(u)})
		}
	}
	if text := unhandledText(waiting); text != "" {
		add(boxWorkers, waiting[0].Level(), text)
	}
	if !d.Outbox.IsOff && (d.Outbox.Relay == nil || !d.Outbox.Relay.Alive) {
		add(boxRelay, critical, "no relay is alive")
	}
	switch {
	case d.Outbox.StreamError != "":
		add(boxStream, critical, d.Outbox.StreamError)
	case !d.Outbox.IsOff && d.Outbox.Stream == nil:
		add(boxStream, note, "the stream is not read here")
	}
	if !d.Dispatcher.Alive {
		add(boxDispatcher, critical, "no dispatcher is alive")
	}
	for _, s := range d.Subscribers {
		if s.IsPaused {
			add(boxSubscribers, warning, s.Name+" is paused")
		}
	}
}

// Box returns the state of a service.
func (d *systemData) Box(name string) service {
	if b, isBad := d.services[name]; isBad {
		return b
	}
	return service{Level: fine}
}
