package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Members of an event's data, or of the meta of a task's first event, that say when.
const (
	memberRunAt    = "run_at"   // scheduled, snoozed
	memberRetryAt  = "retry_at" // failed
	memberStartBy  = "start_by"
	memberFinishBy = "finish_by"
)

// firstYearRefused is the first year that nothing may be put off to: a moment that far away is
// a mistake, or another system's way to write "never".
const firstYearRefused = 9999

// due is when something is to happen: some time after the database has read its clock, or at a
// moment, or not at all.
type due struct {
	after time.Duration
	at    time.Time
}

func (d due) isZero() bool { return d.after == 0 && d.at.IsZero() }

// check returns an [InvalidError] that names one of the two fields.
func (d due) check(afterField, atField string) error {
	switch {
	case d.after < 0:
		return &InvalidError{Field: afterField, Value: d.after.String(), Rule: "must not be negative"}
	case d.after != 0 && !d.at.IsZero():
		return &InvalidError{Field: afterField, Value: d.after.String(), Rule: "cannot be given together with " + atField}
	}
	return checkMoment(atField, d.at)
}

func checkMoment(field string, t time.Time) error {
	if t.UTC().Year() >= firstYearRefused {
		return &InvalidError{Field: field, Value: t.UTC().Format(time.RFC3339), Rule: fmt.Sprintf("must be before the year %d", firstYearRefused)}
	}
	return nil
}

// texts are the parameters after (microseconds) and at of a statement; "" is null.
func (d due) texts() (after, at string) {
	switch {
	case !d.at.IsZero():
		return "", momentText(d.at)
	case d.after != 0:
		microseconds := d.after.Microseconds()
		if d.after%time.Microsecond != 0 {
			microseconds++ // never early
		}
		return strconv.FormatInt(microseconds, 10), ""
	}
	return "", ""
}

// momentText is a moment as a parameter; "" for the zero time. Everything before 1970 is alike:
// it is past, and the database cannot read years below 1.
func momentText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if epoch := time.Unix(0, 0); t.Before(epoch) {
		t = epoch
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

// checkDue checks After and At of a request against its type and data.
func (r AppendRequest) checkDue() error {
	d := due{r.After, r.At}
	if err := d.check("after", "at"); err != nil {
		return err
	}
	member := r.Type.dueMember()
	switch {
	case d.isZero() && (r.Type == EventScheduled || r.Type == EventSnoozed):
		return &InvalidError{Field: "at", Rule: fmt.Sprintf("a %s event needs At or After: nothing else would ever release its task", r.Type)}
	case d.isZero():
		return nil
	case member == "":
		return &InvalidError{Field: "at", Rule: fmt.Sprintf("a %s event has no due time", r.Type)}
	case r.Data == nil:
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Data, &members); err != nil || members == nil {
		return &InvalidError{Field: "data", Value: string(r.Data), Rule: "must be a JSON object: the due time is written into it"}
	}
	if _, taken := members[member]; taken {
		return &InvalidError{Field: "data", Value: string(r.Data), Rule: "must not hold " + member + ": the database writes it"}
	}
	return nil
}

// dueMember is the member of the data of an event of type t that says when its task is due; ""
// if there is none.
func (t EventType) dueMember() string {
	switch t {
	case EventScheduled, EventSnoozed:
		return memberRunAt
	case EventFailed:
		return memberRetryAt
	case EventEnqueued, EventReleased, EventStarted, EventProgressed, EventSucceeded, EventInterrupted,
		EventBuried, EventCancelled, EventExpired, EventDiscarded:
		return ""
	}
	return ""
}

// DueAt returns when the task that e leaves scheduled or retrying is due, as the database decided:
// meta.run_at of a first event, data.run_at or data.retry_at of a later one. It is zero if there is no
// such member. Data of a foreign shape is no error.
func (e Event) DueAt() time.Time {
	member := e.Type.dueMember()
	switch {
	case member == "":
		return time.Time{}
	case e.Version == 1:
		return momentIn(e.Meta, member)
	}
	return momentIn(e.Data, member)
}

// deadlines returns what the meta of a task's first event says, zero times if nothing.
func deadlines(meta json.RawMessage) (startBy, finishBy time.Time) {
	if !bytes.Contains(meta, []byte(`_by"`)) { // as most: not worth decoding
		return
	}
	return momentIn(meta, memberStartBy), momentIn(meta, memberFinishBy)
}

// momentIn returns a moment that an object holds, else the zero time.
func momentIn(object json.RawMessage, member string) time.Time {
	var members map[string]json.RawMessage
	var moment time.Time
	if json.Unmarshal(object, &members) != nil || json.Unmarshal(members[member], &moment) != nil {
		return time.Time{}
	}
	return moment.UTC().Truncate(time.Microsecond) // as the database keeps it
}

// beginsOnly reports whether an event of type t can be nothing but a task's first.
func (t EventType) beginsOnly() bool {
	row, _ := transition(t)
	return slices.Equal(row.From, []State{StateNone})
}
