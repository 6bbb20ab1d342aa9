package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/strictjson"
)

// Task is the fold of the events of one task, see [Fold].
type Task struct {
	Key
	Shard      Shard     `json:"shard"`
	State      State     `json:"state"`
	Version    Version   `json:"version"`             // of the last event
	Run        int       `json:"run,omitempty"`       // number of the run, from 1
	Attempt    Attempt   `json:"attempt"`             // number of attempts of the run that have begun
	Priority   Priority  `json:"priority,omitempty"`  // of the last event; 0: the default
	Partition  string    `json:"partition,omitempty"` // of the last event
	OrderKey   string    `json:"order_key,omitempty"` // of the last event: see [EnqueueOptions].OrderKey
	Failures   int       `json:"failures"`            // failed attempts since the task was last finished
	EnqueuedAt time.Time `json:"enqueued_at"`         // time of the first event of the first run
	UpdatedAt  time.Time `json:"updated_at"`          // time of the last event
	DueAt      time.Time `json:"due_at,omitzero"`     // time of the release, if the task is scheduled or retrying
	StartBy    time.Time `json:"start_by,omitzero"`   // see [EnqueueOptions]
	FinishBy   time.Time `json:"finish_by,omitzero"`  // see [EnqueueOptions]
	Actor      string    `json:"actor,omitempty"`     // of the last event
	Error      string    `json:"error,omitempty"`     // of the last failed or buried event
	Reason     string    `json:"reason,omitempty"`    // why it is dead, cancelled, expired or discarded, if recorded
	LostInARow int       `json:"lost_in_a_row"`       // consecutive attempts without an outcome before this one

	// Retry is the policy that the producer chose, see [ParseRetryPolicy]. Default: the kind's. It is stored in the
	// meta of the event with the args, and is not in the JSON of a task.
	Retry json.RawMessage `json:"-"`
	// Cause is the key of the task whose event is the causation in the meta of the first run.
	Cause Key `json:"cause,omitzero"`

	After []Key `json:"after,omitempty"` // its predecessors, see [EnqueueOptions]

	// Fingerprint of the error of a dead task, see [Event.ErrorFingerprint]. It is "" in other states.
	Fingerprint string `json:"fingerprint,omitempty"`

	Args json.RawMessage `json:"args,omitempty"` // as stored; see [Event.Payload]
	// ArgsEncoding is [EncodingBase64] if Args are bytes in a JSON string, else "".
	ArgsEncoding string          `json:"args_encoding,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"` // data.result of the succeeded event
	// Progress is the newest report of the handler that runs, data.progress of the last event.
	Progress json.RawMessage `json:"progress,omitempty"`

	// ArchivedAt is when the archive has removed the task from the tables.
	ArchivedAt time.Time `json:"archived_at,omitzero"`
}

// String returns the key, the state, the version, the attempt and the error, if any, such as "coupon.send/A-1 dead,
// version 7, attempt 3: card refused". Its form may change.
func (t Task) String() string {
	text := fmt.Sprintf("%s %s, version %d, attempt %d", t.Key, t.State, t.Version, t.Attempt)
	if t.Error != "" && t.State != StateSucceeded {
		text += ": " + t.Error
	}
	return text
}

// ReasonArchived is the reason of a task that was discarded because its key was archived.
const ReasonArchived = "archived"

// Apply returns the task after one more event, without modifying t. It returns t and an [*IllegalError] if the event
// cannot follow: the event of another task, a gap in the versions, a transition that is not in [Transitions], or a
// wrong attempt. There is a gap in the versions before an event that discards a task with [ReasonArchived].
func (t Task) Apply(e Event) (Task, error) {
	switch {
	case t.Version != 0 && e.Key != t.Key:
		reason := "it does not belong to task " + t.Key.String()
		return t, &IllegalError{Event: e, State: t.State, Reason: reason}
	case e.Version != t.Version+1 && !t.isDuplicateUntil(e):
		reason := fmt.Sprintf("the version must be %d, got %d", t.Version+1, e.Version)
		return t, &IllegalError{Event: e, State: t.State, Reason: reason}
	case t.enqueues(e):
		if reason := t.refuses(e); reason != "" {
			return t, &IllegalError{Event: e, State: t.State, Reason: reason}
		}
	case !e.Type.allowedAfter(t.State):
		return t, &IllegalError{Event: e, State: t.State, Reason: "the transition does not exist"}
	}
	attempt := t.Attempt
	switch {
	case t.enqueues(e):
		attempt = 0
	case e.Type.beginsAttempt(t.State):
		attempt++
	}
	if e.Attempt != attempt {
		reason := fmt.Sprintf("the attempt must be %d, got %d", attempt, e.Attempt)
		return t, &IllegalError{Event: e, State: t.State, Reason: reason}
	}

	next := t
	next.State, next.Version, next.Attempt = e.Type.State(), e.Version, e.Attempt
	next.Priority, next.Partition, next.OrderKey = e.Priority, e.Partition, e.OrderKey
	next.UpdatedAt, next.Actor = e.RecordedAt, e.Actor
	next.DueAt, next.LostInARow, next.Fingerprint = e.DueAt(), 0, ""
	next.Reason, next.Progress = e.reason(), e.progress()
	if t.Version == 0 {
		next.Key, next.Shard, next.EnqueuedAt, next.Run = e.Key, e.Shard, e.RecordedAt, 1
		next.Cause = parseCause(e.Meta)
	}
	if e.HasArgs() {
		next.setArgs(e)
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
	case EventReleased, EventLinedUp:
		if t.State.Finished() {
			next.Failures = 0 // an operator has released the task, with all attempts of its policy
		}
	case EventSucceeded:
		next.Result = e.result()
	case EventEnqueued, EventScheduled, EventInterrupted, EventSnoozed, EventCancelled, EventExpired, EventDiscarded:
		// The members above are all that changes.
	}
	return next, nil
}

// setArgs takes args and meta from an event that has args.
func (t *Task) setArgs(e Event) {
	if e.Run > 0 {
		t.Run, t.Failures, t.Error, t.Result = e.Run, 0, "", nil
	}
	t.Args = e.Data
	t.ArgsEncoding, _ = parseEncoding(e.Meta) // an invalid meta must not make the task unreadable
	t.StartBy, t.FinishBy = parseDeadlines(e.Meta)
	t.Retry = parseRetry(e.Meta)
	t.After = parseAfter(e.Meta).Keys
}

// enqueues reports whether e enqueues a later run of the task, or replaces its args.
func (t Task) enqueues(e Event) bool { return t.Version > 0 && e.Run > 0 }

// refuses returns why e may not enqueue a run of the task or replace its args, or "".
func (t Task) refuses(e Event) string {
	run := t.Run
	if t.State.Finished() {
		run++
	}
	switch {
	case e.Type != EventEnqueued && e.Type != EventScheduled && e.Type != EventLinedUp:
		return "only enqueued, scheduled and lined_up events have args"
	case !t.State.Finished() && (t.Attempt > 0 ||
		t.State != StateAvailable && t.State != StateScheduled && t.State != StateInLine):
		return "the run has begun"
	case e.Run != run && t.Run > 0:
		return fmt.Sprintf("the run must be %d, got %d", run, e.Run)
	}
	return ""
}

// parseRetry returns the retry policy in the meta of an event with args, nil without one.
func parseRetry(meta json.RawMessage) json.RawMessage {
	if !bytes.Contains(meta, []byte(`"retry"`)) { // most metas: saves decoding
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(meta, &members) != nil {
		return nil
	}
	if string(members["retry"]) == "null" {
		return nil
	}
	return members["retry"]
}

// result returns the result in the data of a succeeded event, or nil if the data have another shape.
func (e Event) result() json.RawMessage {
	if len(e.Data) == 0 {
		return nil
	}
	return strictjson.Member(e.Data, "result")
}

// isDuplicateUntil reports whether e discards the task because its key was archived. Its version continues the archived
// ones: see docs/keys.md. An erasure removes the reason.
func (t Task) isDuplicateUntil(e Event) bool {
	return t.Version > 0 && e.Type == EventDiscarded && e.Version > t.Version &&
		(len(e.Data) == 0 || e.reason() == ReasonArchived)
}

// reason returns why a task is dead, cancelled, expired or discarded, "" if only its error is recorded.
func (e Event) reason() string {
	switch e.Type {
	case EventCancelled, EventExpired, EventDiscarded:
		return e.ErrorText()
	case EventBuried:
		if strictjson.Text(e.Data, "error", "message") != "" {
			return strings.ReplaceAll(strictjson.Text(e.Data, "reason"), "\x00", "\uFFFD")
		}
		return ""
	default:
		return ""
	}
}

// progress returns the report of a progressed event, nil for other events.
func (e Event) progress() json.RawMessage {
	if e.Type != EventProgressed || len(e.Data) == 0 {
		return nil
	}
	return strictjson.Member(e.Data, "progress")
}

// Fold returns the task after events, which are the events of one task in order, from version 1 on. If an event cannot
// follow, it returns an [*IllegalError], and the task before the first such event.
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

// ErrorText returns the message of a failed or buried event: data.error.message, else data.reason, else "".
// It returns "" if the data have another shape.
func (e Event) ErrorText() string {
	text := strictjson.Text(e.Data, "error", "message")
	if text == "" {
		text = strictjson.Text(e.Data, "reason")
	}
	return strings.ReplaceAll(text, "\x00", "\uFFFD") // PostgreSQL cannot store it as text
}
