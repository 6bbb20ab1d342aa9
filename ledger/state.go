package ledger

import "slices"

// EventType is what an event says happened.
type EventType string

// The types of events. All exist in the schema from its first version on.
const (
	EventEnqueued    EventType = "enqueued"    // by a producer; due now
	EventScheduled   EventType = "scheduled"   // by a producer, or moved by an operator: due in the future; meta.run_at, later data.run_at
	EventReleased    EventType = "released"    // made available again; data.reason
	EventStarted     EventType = "started"     // a worker began attempt n
	EventProgressed  EventType = "progressed"  // a worker says how far it has got
	EventSucceeded   EventType = "succeeded"   // a worker finished; data.result
	EventFailed      EventType = "failed"      // an attempt failed; data.error, data.retry_at
	EventInterrupted EventType = "interrupted" // given back unfinished; not counted as a failure
	EventSnoozed     EventType = "snoozed"     // put off by its handler; not counted as a failure; data.run_at
	EventBuried      EventType = "buried"      // given up: needs a person
	EventCancelled   EventType = "cancelled"   // called off by a producer or an operator
	EventExpired     EventType = "expired"     // its deadline passed before it was started
	EventDiscarded   EventType = "discarded"   // not to be done: shed by an overload policy, or by the word of its handler; data.reason
)

// State is what a task is in: a function of its last event's type.
type State string

// The states of a task. StateNone is that of a task without events.
const (
	StateNone      State = ""
	StateAvailable State = "available"
	StateScheduled State = "scheduled"
	StateRunning   State = "running"
	StateRetrying  State = "retrying"
	StateSucceeded State = "succeeded"
	StateDead      State = "dead"
	StateCancelled State = "cancelled"
	StateExpired   State = "expired"
	StateDiscarded State = "discarded"
)

// Finished reports whether nothing more happens to a task in this state by itself.
func (s State) Finished() bool {
	switch s {
	case StateSucceeded, StateDead, StateCancelled, StateExpired, StateDiscarded:
		return true
	case StateNone, StateAvailable, StateScheduled, StateRunning, StateRetrying:
		return false
	}
	return false
}

// Exceptional reports whether s is neither available, running nor succeeded. Operators look for
// tasks in such states.
func (s State) Exceptional() bool {
	return s != StateAvailable && s != StateRunning && s != StateSucceeded
}

// Transition is one row of the transition table.
type Transition struct {
	Type EventType
	From []State // states in which the event may be appended
	To   State   // the state after it
}

var unfinished = []State{StateAvailable, StateScheduled, StateRunning, StateRetrying}

// atWork is where a worker's event may follow. Available is among them because the started
// event of a quick task is never recorded.
var atWork = []State{StateRunning, StateAvailable}

// transitions is the table that the fold, the append and the documentation share.
var transitions = []Transition{
	{EventEnqueued, []State{StateNone}, StateAvailable},
	{EventScheduled, []State{StateNone, StateScheduled, StateRetrying, StateAvailable}, StateScheduled},
	{EventReleased, []State{StateScheduled, StateRetrying, StateDead, StateCancelled, StateExpired, StateDiscarded, StateAvailable}, StateAvailable},
	{EventStarted, []State{StateAvailable, StateRunning}, StateRunning},
	{EventProgressed, atWork, StateRunning},
	{EventSucceeded, atWork, StateSucceeded},
	{EventFailed, atWork, StateRetrying},
	{EventInterrupted, atWork, StateAvailable},
	{EventSnoozed, atWork, StateScheduled},
	{EventBuried, unfinished, StateDead},
	{EventCancelled, unfinished, StateCancelled},
	{EventExpired, []State{StateAvailable, StateScheduled, StateRetrying}, StateExpired},
	{EventDiscarded, []State{StateAvailable, StateScheduled, StateRunning}, StateDiscarded},
}

// Transitions returns the transition table, one row per event type, in the order of the schema.
// The slice is the caller's own.
func Transitions() []Transition {
	table := slices.Clone(transitions)
	for i := range table {
		table[i].From = slices.Clone(table[i].From)
	}
	return table
}

func transition(t EventType) (Transition, bool) {
	i := slices.IndexFunc(transitions, func(row Transition) bool { return row.Type == t })
	if i < 0 {
		return Transition{}, false
	}
	return transitions[i], true
}

// State returns the state of a task whose last event is of type t, or StateNone if there is
// no such type.
func (t EventType) State() State {
	row, _ := transition(t)
	return row.To
}

// WakesWorkers reports whether an event of this type makes its task available, so that its
// message carries the task's args and goes to workers.
func (t EventType) WakesWorkers() bool { return t.State() == StateAvailable }

// allowedAfter reports whether an event of type t may follow state s.
func (t EventType) allowedAfter(s State) bool {
	row, ok := transition(t)
	return ok && slices.Contains(row.From, s)
}

// beginsAttempt reports whether an event of type t, appended in state s, belongs to a new
// attempt: a started event does, and so does a worker's event whose started was never recorded.
func (t EventType) beginsAttempt(s State) bool {
	switch t {
	case EventStarted:
		return true
	case EventProgressed, EventSucceeded, EventFailed, EventInterrupted, EventSnoozed:
		return s == StateAvailable
	case EventEnqueued, EventScheduled, EventReleased, EventBuried, EventCancelled, EventExpired, EventDiscarded:
		return false
	}
	return false
}
