package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// maxMessage is how much of an error's message is recorded.
const maxMessage = 4 << 10

// outcomeData is what the data of every outcome says.
type outcomeData struct {
	Worker     string    `json:"worker"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	DurationMS float64   `json:"duration_ms"`
}

func (a *attempt) data() outcomeData {
	return outcomeData{Worker: a.kind.pool.id, StartedAt: a.begun.UTC(), DurationMS: float64(a.took().Microseconds()) / 1000}
}

// failedJSON is the data of a failed event; the database adds retry_at.
func failedJSON(a *attempt, cause error) json.RawMessage {
	text, _ := json.Marshal(struct { // strings, a time and a finite number
		Error errorData `json:"error"`
		outcomeData
	}{describe(cause), a.data()})
	return text
}

// buriedData is the data of a buried event.
type buriedData struct {
	Reason string
	Err    error           // nil: none
	Errors []PreviousError // of all attempts since the task was last released by somebody
	Lost   int             // workers, if that is the reason
}

func (d buriedData) message() string {
	if d.Err == nil {
		return ""
	}
	return d.Err.Error()
}

func (d buriedData) json(a *attempt) json.RawMessage {
	out := struct {
		Reason string          `json:"reason"`
		Error  *errorData      `json:"error,omitempty"`
		Errors []PreviousError `json:"errors,omitempty"`
		Lost   int             `json:"lost,omitempty"`
		outcomeData
	}{Reason: d.Reason, Errors: d.Errors, Lost: d.Lost, outcomeData: a.data()}
	if d.Err != nil {
		e := describe(d.Err)
		e.Stack = "" // the failed event before has it
		out.Error = &e
	}
	text, _ := json.Marshal(out)
	return text
}

// errorData is an error as events carry it.
type errorData struct {
	Message     string `json:"message"`
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"`     // see ledger.Fingerprint
	Stack       string `json:"stack,omitempty"` // of a panic
}

func describe(err error) errorData {
	d := errorData{Message: printable.Storable(err.Error(), maxMessage), Type: errorType(err)}
	var panicked *PanicError
	if errors.As(err, &panicked) {
		d.Type, d.Stack = fmt.Sprintf("panic(%T)", panicked.Value), printable.Storable(string(panicked.Stack), maxStack)
	}
	d.Fingerprint = ledger.Fingerprint(d.Type, d.Message)
	return d
}

// errorType is the type of the first error in the chain that says more than that it wraps
// another one, so that an error is of one type wherever it is wrapped.
func errorType(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return reflect.TypeOf(err).String()
		}
		switch err.(type) {
		case *RetryError, *PermanentError, *SafeToRetryError:
		default:
			if reflect.TypeOf(err).String() != "*fmt.wrapError" {
				return reflect.TypeOf(err).String()
			}
		}
		err = inner
	}
}
