package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Members of an event's data, or of the meta of a task's first event, that contain a time.
const (
	memberRunAt    = "run_at"   // scheduled, snoozed
	memberRetryAt  = "retry_at" // failed
	memberStartBy  = "start_by"
	memberFinishBy = "finish_by"
)

// endOfTime is the first invalid due time, equal to end_of_time: the due time of timers of tasks that wait
// for their predecessors. A later time is a mistake, or another system's way to write "never".
var endOfTime = time.Date(9998, time.December, 31, 23, 59, 59, 999_999_000, time.UTC)

// dueTime is a delay, counted by the database's clock, or a time, or neither.
type dueTime struct {
	after time.Duration
	at    time.Time
}

func (d dueTime) isZero() bool { return d.after == 0 && d.at.IsZero() }

// check returns nil, or an [*InvalidError] for the field named afterField or atField.
func (d dueTime) check(afterField, atField string) error {
	switch {
	case d.after < 0:
		return &InvalidError{Field: afterField, Value: d.after.String(), Rule: "must not be negative"}
	case d.after != 0 && !d.at.IsZero():
		rule := "must not be set together with " + atField
		return &InvalidError{Field: afterField, Value: d.after.String(), Rule: rule}
	}
	return checkTime(atField, d.at)
}

// checkTime returns an [*InvalidError] if t is too far in the future.
func checkTime(field string, t time.Time) error {
	if !t.Before(endOfTime) {
		return &InvalidError{Field: field, Value: t.UTC().Format(time.RFC3339Nano),
			Rule: "must be before the last microsecond of the year 9998"}
	}
	return nil
}

// params returns the statement parameters after (microseconds) and at, with "" for null.
func (d dueTime) params() (after, at string) {
	switch {
	case !d.at.IsZero():
		return "", timeParam(d.at)
	case d.after != 0:
		microseconds := d.after.Microseconds()
		if d.after%time.Microsecond != 0 {
			microseconds++ // rounded up: never too early
		}
		return strconv.FormatInt(microseconds, 10), ""
	}
	return "", ""
}

// timeParam returns t as a statement parameter, "" for the zero time. A time before 1970 becomes 1970: both
// are past, and the database cannot parse years below 1.
func timeParam(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if epoch := time.Unix(0, 0); t.Before(epoch) {
		t = epoch
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

// checkDue returns an [*InvalidError] if In and At do not fit each other, the type or the data.
func (r AppendRequest) checkDue() error {
	d := dueTime{r.In, r.At}
	if err := d.check("in", "at"); err != nil {
		return err
	}
	member := r.Type.dueMember()
	switch {
	case d.isZero() && (r.Type == EventScheduled || r.Type == EventSnoozed):
		return &InvalidError{Field: "at", Rule: fmt.Sprintf("must be set, or in, for a %s event", r.Type)}
	case d.isZero():
		return nil
	case member == "":
		return &InvalidError{Field: "at", Rule: fmt.Sprintf("must not be set for a %s event", r.Type)}
	case r.Data == nil:
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Data, &members); err != nil || members == nil {
		rule := "must be a JSON object, because the database writes the due time into it"
		return &InvalidError{Field: "data", Value: string(r.Data), Rule: rule}
	}
	if _, ok := members[member]; ok {
		rule := "must not contain " + member + ", because the database writes it"
		return &InvalidError{Field: "data", Value: string(r.Data), Rule: rule}
	}
	return nil
}

// dueMember returns the name of the member that contains the due time of an event of type t, or "".
func (t EventType) dueMember() string {
	switch t {
	case EventScheduled, EventSnoozed:
		return memberRunAt
	case EventFailed:
		return memberRetryAt
	default:
		return ""
	}
}

// DueAt returns the due time that the database has decided for a task that e leaves scheduled or retrying: meta.run_at
// of an event with args, otherwise data.run_at or data.retry_at. It returns the zero time if the member is missing or
// not a time.
func (e Event) DueAt() time.Time {
	member := e.Type.dueMember()
	switch {
	case member == "":
		return time.Time{}
	case e.HasArgs():
		return timeMember(e.Meta, member)
	}
	return timeMember(e.Data, member)
}

// parseDeadlines returns the deadlines in the meta of a task's first event, zero times if there is no deadline.
func parseDeadlines(meta json.RawMessage) (startBy, finishBy time.Time) {
	if !bytes.Contains(meta, []byte(`_by"`)) { // most metas: saves decoding
		return
	}
	return timeMember(meta, memberStartBy), timeMember(meta, memberFinishBy)
}

// timeMember returns the time in a member of a JSON object. It returns the zero time if the member is missing, or not
// a time that both PostgreSQL and JSON can represent.
func timeMember(object json.RawMessage, member string) time.Time {
	var members map[string]json.RawMessage
	var t time.Time
	if json.Unmarshal(object, &members) != nil || json.Unmarshal(members[member], &t) != nil {
		return time.Time{}
	}
	t = t.UTC().Truncate(time.Microsecond) // the precision of the database
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// isFirstOnly reports whether an event of type t is always the first of its task.
func (t EventType) isFirstOnly() bool {
	row, _ := transition(t)
	return slices.Equal(row.From, []State{StateNone})
}
