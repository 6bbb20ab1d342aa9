package attempt

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/eventdata"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// Maximum lengths of parts of an error in events, in bytes.
const (
	MaxMessage      = 4 << 10
	MaxStack        = 8 << 10
	maxShortMessage = MaxMessage / 8
)

// expiredData is the data of an expired event, the same as the scheduler's.
var expiredData = json.RawMessage(`{"reason":"finish_by"}`)

// marshalSucceeded returns the data of a succeeded event. worker is JSON.
func marshalSucceeded(worker []byte, beganAt time.Time, result json.RawMessage) json.RawMessage {
	b := make([]byte, 0, 128+len(result))
	b = append(b, `{"worker":`...)
	b = append(b, worker...)
	b = append(b, `,"started_at":"`...)
	b = micros(beganAt).AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","duration_ms":`...)
	b = strconv.AppendFloat(b, float64(time.Since(beganAt).Microseconds())/1000, 'f', -1, 64)
	if result != nil {
		b = append(b, `,"result":`...)
		b = append(b, result...)
	}
	return append(b, '}')
}

// SucceededData returns the data of a succeeded event, for an attempt whose process has ended.
func SucceededData(worker string, beganAt time.Time, result json.RawMessage) json.RawMessage {
	quoted, _ := json.Marshal(worker) // a string
	return marshalSucceeded(quoted, beganAt, result)
}

// ReasonData returns the data of an interrupted event, for an attempt whose process has ended.
func ReasonData(reason, worker string, beganAt time.Time) json.RawMessage {
	return marshalReason(reason, eventdata.Outcome{
		Worker: worker, StartedAt: micros(beganAt), DurationMS: float64(time.Since(beganAt).Microseconds()) / 1000,
	})
}

// startData returns the data of the event that records the start of an attempt: how long the attempt has run, and then
// the members of data, a JSON object or nil.
func (rec *recorder) startData(data json.RawMessage) json.RawMessage {
	b := append(make([]byte, 0, 32+len(data)), `{"duration_ms":`...)
	b = strconv.AppendFloat(b, float64(rec.Elapsed().Microseconds())/1000, 'f', -1, 64)
	if members := bytes.TrimPrefix(data, []byte("{")); len(members) > 1 {
		return append(append(b, ','), members...)
	}
	return append(b, '}')
}

// micros returns a time with the precision of the ledger, microseconds.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// marshalFailed returns the data of a failed event; the database adds retry_at.
func marshalFailed(e eventdata.Error, o eventdata.Outcome) json.RawMessage {
	text, _ := json.Marshal(eventdata.Failed{Error: e, Outcome: o}) // strings, a time and a finite number
	return text
}

// marshalReason returns the data of an outcome that is neither success nor failure.
func marshalReason(reason string, o eventdata.Outcome) json.RawMessage {
	// Strings, a time and a finite number.
	data, _ := json.Marshal(eventdata.Reason{Reason: printable.Storable(reason, MaxMessage), Outcome: &o})
	return data
}

// burial is the reason for which a task is buried.
type burial struct {
	Reason string
	Err    error               // may be nil
	Errors []eventdata.Failure // of attempts since the last release from a finished state, the last ones only
	Lost   int                 // workers in a row, if that is the reason
}

// marshalBuried returns the data of a buried event. e is the error, or nil.
func marshalBuried(b burial, e *eventdata.Error, o eventdata.Outcome) json.RawMessage {
	if e != nil {
		e.Stack = "" // the failed event before contains it
	}
	text, _ := json.Marshal(eventdata.Buried{ // strings, times and finite numbers
		Reason: b.Reason, Error: e, Errors: b.Errors, Lost: b.Lost, Outcome: &o,
	})
	return text
}

// describe returns an error as events store it.
func (k *Kind) describe(err error) eventdata.Error {
	d := eventdata.Error{Message: printable.Storable(err.Error(), MaxMessage)}
	d.Type, d.Stack = k.Errors.Describe(err)
	d.Stack = printable.Storable(d.Stack, MaxStack)
	d.Fingerprint = ledger.Fingerprint(d.Type, d.Message)
	return d
}

// MaxFailures bounds the failed attempts in a buried event and in a job's previous errors. failures_of has
// an equal limit.
const MaxFailures = 100

// failureTypes are the types of failures, and of the events before the release or the next run of a finished task.
var failureTypes = []ledger.EventType{
	ledger.EventFailed, ledger.EventSucceeded, ledger.EventBuried, ledger.EventCancelled, ledger.EventExpired,
	ledger.EventDiscarded,
}

// Failures returns the failed attempts of the task since it was last finished, at most the last [MaxFailures], oldest
// first. They count against the limit, as in the fold (ledger.Task.Failures).
func (rec *recorder) Failures(ctx context.Context) ([]eventdata.Failure, error) {
	events, err := rec.Newest(ctx, ledger.NewestOptions{Types: failureTypes, Limit: MaxFailures})
	if err != nil {
		return nil, err
	}
	var all []eventdata.Failure
	for _, e := range events {
		if e.Type != ledger.EventFailed { // it was finished, and runs again
			all = nil
			continue
		}
		all = append(all, eventdata.Failure{
			Attempt: e.Attempt, At: e.RecordedAt, Message: shortMessage(e.ErrorText()),
		})
	}
	return all, nil
}

func shortMessage(s string) string { return printable.Storable(s, maxShortMessage) }
