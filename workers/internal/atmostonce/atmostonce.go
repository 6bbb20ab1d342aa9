// Package atmostonce defines the mark in the ledger by which workers and the reconciler recognize an attempt
// that must not be repeated.
package atmostonce

import (
	"encoding/json"

	"github.com/taskledger/taskledger/ledger"
)

// Guarantee is the name of the guarantee in events and leases.
const Guarantee = "at most once"

// StartedData is the data of the started event of an attempt that must not be repeated. It is in the event
// because a process that does not handle the kind, such as the reconciler, must recognize the attempt.
var StartedData = json.RawMessage(`{"guarantee":"` + Guarantee + `"}`)

// ReasonUnknown is the reason of a burial after an attempt that may have had its effect, a part of it, or no effect.
const ReasonUnknown = "unknown outcome"

// HasStarted reports whether the last attempt in a task's history must not be repeated.
func HasStarted(history []ledger.Event) bool {
	for i := len(history) - 1; i >= 0; i-- {
		if e := history[i]; e.Type == ledger.EventStarted {
			return string(e.Data) == string(StartedData)
		}
	}
	return false
}
