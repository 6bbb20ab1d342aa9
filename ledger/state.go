package ledger

import "slices"

// EventType is the type of an event, which decides the state of its task: see [Transitions].
type EventType string

// The types of events, with the main members of their data.
const (
	// EventEnqueued: a producer enqueued the task, due now, or a later run of it, or replaced the args of a task that
	// had not begun. The data are the args.
	EventEnqueued EventType = "enqueued"
	// EventScheduled: a producer did so, due in the future, or an operator postponed the task. The data of a producer's
	// event are the args, and the due time is meta.run_at. In an operator's event it is data.run_at.
	EventScheduled EventType = "scheduled"
	// EventLinedUp: the task took its place in the line of its order key: when a producer enqueued it, due now, when it
	// became due, or when it was released after it had finished. The data of a producer's event are the args.
	EventLinedUp EventType = "lined_up"
	// EventReleased: the task became available again; data.reason, which is turn if its turn in line has come.
	EventReleased EventType = "released"
	// EventStarted: a worker began an attempt.
	EventStarted EventType = "started"
	// EventProgressed: a worker reported the progress of its attempt.
	EventProgressed EventType = "progressed"
	// EventSucceeded: an attempt succeeded; data.result.
	EventSucceeded EventType = "succeeded"
	// EventFailed: an attempt failed; data.error, data.retry_at.
	EventFailed EventType = "failed"
	// EventInterrupted: a worker ended its attempt early, at shutdown for example. It is not a failure.
	EventInterrupted EventType = "interrupted"
	// EventSnoozed: the handler postponed the task; data.run_at. It is not a failure.
	EventSnoozed EventType = "snoozed"
	// EventBuried: the task is dead and needs a person; data.error or data.reason.
	EventBuried EventType = "buried"
	// EventCancelled: a producer or an operator cancelled the task.
	EventCancelled EventType = "cancelled"
	// EventExpired: a deadline of the task passed while it waited.
	EventExpired EventType = "expired"
	// EventDiscarded: an overload policy or the handler discarded the task; data.reason.
	EventDiscarded EventType = "discarded"
)

// State is the state of a task, a function of the type of its last event.
type State string

// The states of a task. StateNone is the state of a task without events.
const (
	StateNone      State = ""
	StateAvailable State = "available"
	StateScheduled State = "scheduled"
	StateInLine    State = "in_line" // until its turn: see [EnqueueOptions].OrderKey
	StateRunning   State = "running"
	StateRetrying  State = "retrying"
	StateSucceeded State = "succeeded"
	StateDead      State = "dead"
	StateCancelled State = "cancelled"
	StateExpired   State = "expired"
	StateDiscarded State = "discarded"
)

// Finished reports whether a task in state s stays in it unless an operator releases it or a producer enqueues another
// run of it.
func (s State) Finished() bool {
	switch s {
	case StateSucceeded, StateDead, StateCancelled, StateExpired, StateDiscarded:
		return true
	case StateNone, StateAvailable, StateScheduled, StateInLine, StateRunning, StateRetrying:
		return false
	}
	return false
}

// Exceptional reports whether s is neither available, running nor succeeded. Operators list tasks in
// such states.
func (s State) Exceptional() bool {
	return s != StateAvailable && s != StateRunning && s != StateSucceeded
}

// Transition is one row of the transition table.
type Transition struct {
	Type EventType
	From []State // states of the task in which the event may be appended
	To   State   // state of the task after the event
}

var unfinishedStates = []State{StateAvailable, StateScheduled, StateInLine, StateRunning, StateRetrying}

// workerStates are the states in which a worker may append the outcome of an attempt. They include StateAvailable,
// because a worker does not append the started event of a quick task.
var workerStates = []State{StateRunning, StateAvailable}

// transitions is the table that the fold, the append and the documentation share.
var transitions = []Transition{
	{Type: EventEnqueued, From: []State{StateNone}, To: StateAvailable},
	{
		Type: EventScheduled,
		From: []State{StateNone, StateScheduled, StateRetrying, StateAvailable, StateInLine},
		To:   StateScheduled,
	},
	{
		Type: EventLinedUp,
		From: []State{StateNone, StateScheduled, StateDead, StateCancelled, StateExpired, StateDiscarded},
		To:   StateInLine,
	},
	{
		Type: EventReleased,
		From: []State{
			StateScheduled, StateRetrying, StateDead, StateCancelled, StateExpired, StateDiscarded, StateAvailable,
			StateInLine,
		},
		To: StateAvailable,
	},
	{Type: EventStarted, From: []State{StateAvailable, StateRunning}, To: StateRunning},
	{Type: EventProgressed, From: workerStates, To: StateRunning},
	{Type: EventSucceeded, From: workerStates, To: StateSucceeded},
	{Type: EventFailed, From: workerStates, To: StateRetrying},
	{Type: EventInterrupted, From: workerStates, To: StateAvailable},
	{Type: EventSnoozed, From: workerStates, To: StateScheduled},
	{Type: EventBuried, From: unfinishedStates, To: StateDead},
	{Type: EventCancelled, From: unfinishedStates, To: StateCancelled},
	{
		Type: EventExpired, From: []State{StateAvailable, StateScheduled, StateInLine, StateRetrying},
		To: StateExpired,
	},
	{
		Type: EventDiscarded, From: []State{StateAvailable, StateScheduled, StateInLine, StateRunning},
		To: StateDiscarded,
	},
}

// Transitions returns a copy of the transition table, one row for each event type, in the order of the schema.
func Transitions() []Transition {
	table := slices.Clone(transitions)
	for i := range table {
		table[i].From = slices.Clone(table[i].From)
	}
	return table
}

// transition returns the row of t and reports whether it exists.
func transition(t EventType) (Transition, bool) {
	i := slices.IndexFunc(transitions, func(row Transition) bool { return row.Type == t })
	if i < 0 {
		return Transition{}, false
	}
	return transitions[i], true
}

// State returns the state of a task whose last event is of type t, or StateNone if t is not an event type.
func (t EventType) State() State {
	row, _ := transition(t)
	return row.To
}

// WakesWorkers reports whether an event of type t makes its task available. The message of such an event contains the
// task's args.
func (t EventType) WakesWorkers() bool { return t.State() == StateAvailable }

// allowedAfter reports whether an event of type t may follow state s.
func (t EventType) allowedAfter(s State) bool {
	row, ok := transition(t)
	return ok && slices.Contains(row.From, s)
}

// canBeAppended is allowedAfter for an append: a task in line is released by the services, when its turn has come.
func (t EventType) canBeAppended(s State) bool {
	return t.allowedAfter(s) && !(t == EventReleased && s == StateInLine)
}

// beginsAttempt reports whether an event of type t, appended in state s, belongs to a new attempt: a started
// event, or a worker's event without a started event before it.
func (t EventType) beginsAttempt(s State) bool {
	switch t {
	case EventStarted:
		return true
	case EventProgressed, EventSucceeded, EventFailed, EventInterrupted, EventSnoozed:
		return s == StateAvailable
	case EventEnqueued, EventScheduled, EventLinedUp, EventReleased, EventBuried, EventCancelled, EventExpired,
		EventDiscarded:
		return false
	}
	return false
}
