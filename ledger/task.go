package ledger

import (
	"encoding/json"
	"fmt"
	"time"
)

// Task is the state of one task: the fold of its events.
type Task struct {
	Key
	Shard      Shard     `json:"shard"`
	State      State     `json:"state"`
	Version    Version   `json:"version"`  // of its last event
	Attempt    Attempt   `json:"attempt"`  // tries begun so far
	Failures   int       `json:"failures"` // attempts that failed since it was last released from a finished state
	EnqueuedAt time.Time `json:"enqueued_at"`
	UpdatedAt  time.Time `json:"updated_at"`         // when its last event was recorded
	DueAt      time.Time `json:"due_at,omitzero"`    // when it is released, if it is scheduled or retrying
	StartBy    time.Time `json:"start_by,omitzero"`  // when it expires if it is unstarted
	FinishBy   time.Time `json:"finish_by,omitzero"` // when it expires if it waits, and its last attempt ends
	Actor      string    `json:"actor,omitempty"`    // of its last event
	Error      string    `json:"error,omitempty"`    // of its last failed or buried event
	LostInARow int       `json:"lost_in_a_row"`      // workers that vanished during it, one after the other
	Cause      Key       `json:"cause,omitzero"`     // the task whose event led to it, says its meta; zero: none

	// Fingerprint of the error that a dead task is dead of, see [ErrorFingerprint]; else "".
	Fingerprint string `json:"fingerprint,omitempty"`

	Args json.RawMessage `json:"args,omitempty"` // as stored; see Event.Payload
	// ArgsEncoding is [EncodingBase64] if Args are bytes in a JSON string, else "".
	ArgsEncoding string          `json:"args_encoding,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"` // data.result of succeeded
}

// String returns key, state, version, attempt and the error, if there is one, such as
// "coupon.send/A-1 dead, version 7, attempt 3: card refused". Its form may change.
func (t Task) String() string {
	text := fmt.Sprintf("%s %s, version %d, attempt %d", t.Key, t.State, t.Version, t.Attempt)
	if t.Error != "" && t.State != StateSucceeded {
		text += ": " + t.Error
	}
	return text
}

// Apply returns the task after one more event. It is pure. It returns an [*IllegalError], and
// t as it was, if the event cannot follow: another task's, a gap in the versions, a
// transition or an attempt that the table does not allow.
func (t Task) Apply(e Event) (Task, error) {
	switch {
	case t.Version != 0 && e.Key != t.Key:
		return t, &IllegalError{Event: e, State: t.State, Reason: "it belongs to another task than " + t.Key.String()}
	case e.Version != t.Version+1:
		return t, &IllegalError{Event: e, State: t.State, Reason: "the versions have a gap"}
	case !e.Type.allowedAfter(t.State):
		return t, &IllegalError{Event: e, State: t.State, Reason: "the transition does not exist"}
	}
	attempt := t.Attempt
	if e.Type.beginsAttempt(t.State) {
		attempt++
	}
	if e.Attempt != attempt {
		return t, &IllegalError{Event: e, State: t.State, Reason: "the attempt is out of step"}
	}

	next := t
	next.State, next.Version, next.Attempt = e.Type.State(), e.Version, e.Attempt
	next.UpdatedAt, next.Actor = e.RecordedAt, e.Actor
	next.DueAt, next.LostInARow, next.Fingerprint = e.DueAt(), 0, ""
	if t.Version == 0 {
		next.Key, next.Shard, next.EnqueuedAt, next.Args = e.Key, e.Shard, e.RecordedAt, e.Data
		next.ArgsEncoding, _ = encodingOf(e.Meta) // unreadable, it must not make the task unreadable
		next.StartBy, next.FinishBy = deadlines(e.Meta)
		next.Cause = causeIn(e.Meta)
	}
	switch e.Type {
	case EventStarted:
		if t.State == StateRunning {
			next.LostInARow = t.LostInARow + 1
		}
	case EventProgressed:
		next.LostInARow = t.LostInARow
	case EventFailed:
		next.Failures++
		next.Error = e.ErrorText()
	case EventBuried:
		next.Error, next.Fingerprint = e.ErrorText(), e.ErrorFingerprint()
	case EventReleased:
		if t.State.Finished() {
			next.Failures = 0 // somebody looked at them: a new start
		}
	case EventSucceeded:
		var data struct {
			Result json.RawMessage `json:"result"`
		}
		if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) == nil { // data of a foreign shape must not make the task unreadable
			next.Result = data.Result
		}
	case EventEnqueued, EventScheduled, EventInterrupted, EventSnoozed, EventCancelled, EventExpired, EventDiscarded:
		// The members above are all that changes.
	}
	return next, nil
}

// Fold applies events in order to a task without events.
func Fold(events []Event) (Task, error) {
	var t Task
	for _, e := range events {
		next, err := t.Apply(e)
		if err != nil {
			return t, err
		}
		t = next
	}
	return t, nil
}

// ErrorText returns the message of a failed or buried event: data.error.message, else data.reason,
// else "". Data of a foreign shape is no error.
func (e Event) ErrorText() string {
	var data struct {
		Error  struct{ Message string } `json:"error"`
		Reason string                   `json:"reason"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return ""
	}
	if data.Error.Message != "" {
		return data.Error.Message
	}
	return data.Reason
}
