// Package atmostonce defines the mark in the ledger by which workers and the reconciler recognize an attempt
// that must not be repeated.
package atmostonce

import (
	"context"
	"encoding/json"

	"github.com/taskledger/taskledger/ledger"
)

// Guarantee is the name of the guarantee in events and leases.
const Guarantee = "at most once"

// StartedData is the data of the started event of an attempt that must not be repeated. It is in the event
// because a process that does not handle the kind, such as the reconciler, must recognize the attempt.
var StartedData = json.RawMessage(`{"guarantee":"` + Guarantee + `"}`)

const (
	// ReasonUnknown is the reason of a burial after an attempt that may have had its effect, a part of it, or none.
	ReasonUnknown = "unknown outcome"
	// ReasonUndone is the reason of a burial if the database has lost the start of an attempt that has begun.
	ReasonUndone = ReasonUnknown + ": the database has lost the start of an attempt"
)

// HasStarted reports whether the last attempt of a task must not be repeated.
func HasStarted(ctx context.Context, db ledger.DB, k ledger.Key) (bool, error) {
	o := ledger.NewestOptions{Types: []ledger.EventType{ledger.EventStarted}, Limit: 1}
	started, err := ledger.NewestOf(ctx, db, k, o)
	return err == nil && len(started) > 0 && string(started[0].Data) == string(StartedData), err
}
