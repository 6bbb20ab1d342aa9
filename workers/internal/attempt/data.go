package attempt

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// Limits of what events hold of an error, in bytes.
const (
	MaxMessage      = 4 << 10
	MaxStack        = 8 << 10
	maxShortMessage = MaxMessage / 8
)

// expiredData is the data of an expired event, as the scheduler's is.
var expiredData = json.RawMessage(`{"reason":"finish_by"}`)

// outcomeData is in the data of every outcome.
type outcomeData struct {
	Worker     string    `json:"worker"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	DurationMS float64   `json:"duration_ms"`
}

func (a *Attempt) outcomeData() outcomeData {
	return outcomeData{Worker: a.kind.id, StartedAt: a.begun.UTC(), DurationMS: float64(a.Took().Microseconds()) / 1000}
}

// succeededData is the data of a succeeded event.
func (a *Attempt) succeededData() []byte {
	result := a.work.Result()
	b := make([]byte, 0, 128+len(result))
	b = append(b, `{"worker":`...)
	b = append(b, a.kind.quotedID...)
	b = append(b, `,"started_at":"`...)
	b = a.begun.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","duration_ms":`...)
	b = strconv.AppendFloat(b, float64(time.Since(a.begun).Microseconds())/1000, 'f', -1, 64)
	if result != nil {
		b = append(b, `,"result":`...)
		b = append(b, result...)
	}
	return append(b, '}')
}

// failedData is the data of a failed event; the database adds retry_at.
func (a *Attempt) failedData(err error) json.RawMessage {
	text, _ := json.Marshal(struct { // strings, a time and a finite number
		Error errorData `json:"error"`
		outcomeData
	}{a.kind.describe(err), a.outcomeData()})
	return text
}

// reason is the data of an outcome that is neither success nor failure.
func (a *Attempt) reason(text string) json.RawMessage {
	data, _ := json.Marshal(struct { // strings, a time and a finite number
		Reason string `json:"reason,omitempty"`
		outcomeData
	}{printable.Storable(text, MaxMessage), a.outcomeData()})
	return data
}

// buriedData is the data of a buried event.
type buriedData struct {
	Reason string
	Err    error     // nil: there is none
	Errors []Failure // of all attempts since the task was last released from a finished state
	Lost   int       // workers in a row, if that is the reason
}

func (d buriedData) message() string {
	if d.Err == nil {
		return ""
	}
	return d.Err.Error()
}

func (a *Attempt) buriedData(d buriedData) json.RawMessage {
	out := struct {
		Reason string     `json:"reason"`
		Error  *errorData `json:"error,omitempty"`
		Errors []Failure  `json:"errors,omitempty"`
		Lost   int        `json:"lost,omitempty"`
		outcomeData
	}{Reason: d.Reason, Errors: d.Errors, Lost: d.Lost, outcomeData: a.outcomeData()}
	if d.Err != nil {
		e := a.kind.describe(d.Err)
		e.Stack = "" // the failed event before has it
		out.Error = &e
	}
	text, _ := json.Marshal(out) // strings, times and finite numbers
	return text
}

// errorData is an error in the data of an event.
type errorData struct {
	Message     string `json:"message"`
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"`     // see ledger.Fingerprint
	Stack       string `json:"stack,omitempty"` // of a panic
}

func (k *Kind) describe(err error) errorData {
	d := errorData{Message: printable.Storable(err.Error(), MaxMessage)}
	d.Type, d.Stack = k.Errors.Describe(err)
	d.Stack = printable.Storable(d.Stack, MaxStack)
	d.Fingerprint = ledger.Fingerprint(d.Type, d.Message)
	return d
}

// Failure is one failed attempt of a task.
type Failure struct {
	Attempt ledger.Attempt `json:"attempt"`
	At      time.Time      `json:"at"`
	Message string         `json:"message"` // shortened
}

// FailuresIn returns the failed attempts of a task since it was last released from a finished state,
// oldest first: they count against the limit, as in the fold (ledger.Task.Failures).
func FailuresIn(history []ledger.Event) []Failure {
	var all []Failure
	for i, e := range history {
		switch {
		case e.Type == ledger.EventFailed:
			all = append(all, Failure{e.Attempt, e.RecordedAt, shortMessage(e.ErrorText())})
		case e.Type == ledger.EventReleased && history[i-1].Type.State().Finished():
			all = nil
		}
	}
	return all
}

func shortMessage(s string) string { return printable.Storable(s, maxShortMessage) }
