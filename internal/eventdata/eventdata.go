// Package eventdata contains the data of events: the bodies of their messages. Events whose body is the task's args
// have none. docs/asyncapi.json is generated from these types.
package eventdata

import (
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Outcome is the part of the data that all outcomes of an attempt share.
type Outcome struct {
	Worker     string    `json:"worker"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	DurationMS float64   `json:"duration_ms"`
}

// Error is an error of a handler.
type Error struct {
	Message     string `json:"message"`
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"`     // see ledger.Fingerprint
	Stack       string `json:"stack,omitempty"` // of a panic
}

// Failure is one failed attempt of a task.
type Failure struct {
	Attempt ledger.Attempt `json:"attempt"`
	At      time.Time      `json:"at"`
	Message string         `json:"message"` // shortened
}

// Started contains the guarantee of an attempt that must not be repeated. DurationMS is how long the attempt had run
// when the event was recorded; without data, the attempt had just begun.
type Started struct {
	Guarantee  string  `json:"guarantee,omitempty"`
	DurationMS float64 `json:"duration_ms,omitempty"`
}

// Progressed is a report of a handler. In the first event of an attempt, DurationMS is how long the attempt had run.
type Progressed struct {
	DurationMS float64         `json:"duration_ms,omitempty"`
	Progress   json.RawMessage `json:"progress,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
}

// Succeeded contains the handler's result.
type Succeeded struct {
	Outcome
	Result json.RawMessage `json:"result,omitempty"`
}

// Failed is a failed attempt. The database adds RetryAt, if the task is not available at once.
type Failed struct {
	Error Error `json:"error"`
	Outcome
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// Buried is the end of a task whose failure needs a person. Outcome is set if a worker buried it.
type Buried struct {
	Reason string    `json:"reason"`
	Error  *Error    `json:"error,omitempty"`
	Errors []Failure `json:"errors,omitempty"` // of the attempts since the last release from a finished state
	Lost   int       `json:"lost,omitempty"`   // workers in a row, if that is the reason
	*Outcome
}

// Reason is the data of an event that is neither success nor failure. Outcome is set if a worker ended the attempt.
type Reason struct {
	Reason string `json:"reason,omitempty"`
	*Outcome
}

// Interrupted is the data of an attempt that was given back. LostInARow counts consecutive attempts whose process was
// lost while this worker waited for it.
type Interrupted struct {
	Reason
	LostInARow int `json:"lost_in_a_row,omitempty"`
}

// Postponed is the data of a snoozed or scheduled event. The database adds RunAt. ShortInARow counts consecutive
// snoozes of less than a second.
type Postponed struct {
	Reason
	ShortInARow int       `json:"short_in_a_row,omitempty"`
	RunAt       time.Time `json:"run_at,omitzero"`
}

// Expired contains the deadline, if the scheduler recorded the event.
type Expired struct {
	Reason
	DueAt time.Time `json:"due_at,omitzero"`
}

// Discarded is the end of a task that is not done. The members after the reason belong to a schedule's task.
type Discarded struct {
	Reason
	Firings    int    `json:"firings,omitempty"` // the number of firings that the task stands for,
	More       bool   `json:"more,omitempty"`    // or more than that,
	From       string `json:"from,omitempty"`    // from the first
	To         string `json:"to,omitempty"`      // to the last
	Unfinished string `json:"unfinished,omitempty"`
}

// Of returns the zero value of the data of a type of event, or nil if the body of its message is the task's args.
func Of(t ledger.EventType) any {
	switch t {
	case ledger.EventStarted:
		return Started{}
	case ledger.EventProgressed:
		return Progressed{}
	case ledger.EventSucceeded:
		return Succeeded{}
	case ledger.EventFailed:
		return Failed{}
	case ledger.EventBuried:
		return Buried{}
	case ledger.EventSnoozed, ledger.EventScheduled:
		return Postponed{}
	case ledger.EventExpired:
		return Expired{}
	case ledger.EventDiscarded:
		return Discarded{}
	case ledger.EventCancelled:
		return Reason{}
	case ledger.EventEnqueued, ledger.EventLinedUp, ledger.EventReleased, ledger.EventInterrupted:
		return nil
	}
	return nil
}
