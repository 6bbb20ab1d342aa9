package attempt

import (
	"bytes"
	"encoding/json"
	"slices"
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

// startData returns the data of the event that records the start of an attempt: for how long the attempt has run,
// before the members of data, a JSON object or nil.
func (rec *recorder) startData(data json.RawMessage) json.RawMessage {
	b := append(make([]byte, 0, 32+len(data)), `{"duration_ms":`...)
	b = strconv.AppendFloat(b, float64(rec.Elapsed().Microseconds())/1000, 'f', -1, 64)
	if members := bytes.TrimPrefix(data, []byte("{")); len(members) > 1 {
		return append(append(b, ','), members...)
	}
	return append(b, '}')
}

// micros returns a time as data has it: to the microsecond, as the ledger has all times.
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
	Errors []eventdata.Failure // of the attempts since the task was last released from a finished state
	Lost   int                 // workers in a row, if that is the reason
}

// marshalBuried returns the data of a buried event. e is the error, or nil.
func marshalBuried(b burial, e *eventdata.Error, o eventdata.Outcome) json.RawMessage {
	if e != nil {
		e.Stack = "" // the failed event before has it
	}
	text, _ := json.Marshal(eventdata.Buried{ // strings, times and finite numbers
		Reason: b.Reason, Error: e, Errors: firstAndLast(b.Errors), Lost: b.Lost, Outcome: &o,
	})
	return text
}

// Of many failures, a buried event has the first and the last ones: its size is limited. The same numbers are in
// taskledger.fail.
const firstErrors, lastErrors = 10, 90

func firstAndLast(all []eventdata.Failure) []eventdata.Failure {
	if len(all) <= firstErrors+lastErrors {
		return all
	}
	return slices.Concat(all[:firstErrors], all[len(all)-lastErrors:])
}

// describe returns an error as events store it.
func (k *Kind) describe(err error) eventdata.Error {
	d := eventdata.Error{Message: printable.Storable(err.Error(), MaxMessage)}
	d.Type, d.Stack = k.Errors.Describe(err)
	d.Stack = printable.Storable(d.Stack, MaxStack)
	d.Fingerprint = ledger.Fingerprint(d.Type, d.Message)
	return d
}

// FailuresIn returns the failed attempts of a task since it was last released from a finished state, oldest first.
// They count against the limit, as in the fold (ledger.Task.Failures).
func FailuresIn(history []ledger.Event) []eventdata.Failure {
	var all []eventdata.Failure
	for i, e := range history {
		switch {
		case e.Type == ledger.EventFailed:
			all = append(all, eventdata.Failure{
				Attempt: e.Attempt, At: e.RecordedAt, Message: shortMessage(e.ErrorText()),
			})
		case e.Type == ledger.EventReleased && history[i-1].Type.State().Finished():
			all = nil
		}
	}
	return all
}

func shortMessage(s string) string { return printable.Storable(s, maxShortMessage) }
