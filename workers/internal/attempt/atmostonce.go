package attempt

import (
	"context"
	"encoding/json"

	"github.com/taskledger/taskledger/ledger"
)

// AtMostOnce is the name of the guarantee in events and leases.
const AtMostOnce = "at most once"

// startedOnce is the data of the started event of an attempt that must not be repeated. Workers with a weaker
// guarantee recognize it.
var startedOnce = json.RawMessage(`{"guarantee":"` + AtMostOnce + `"}`)

const (
	// reasonUnknown is the reason of a burial after an attempt that may have had its whole effect, a part of it, or
	// none.
	reasonUnknown = "unknown outcome"
	// reasonUndone is the reason of a burial if the database has lost the start of an attempt that has begun.
	reasonUndone = reasonUnknown + ": the database has lost the start of an attempt"
)

// hasStartedOnce reports whether the last attempt of a task must not be repeated.
func hasStartedOnce(ctx context.Context, db ledger.DB, k ledger.Key) (bool, error) {
	o := ledger.NewestOptions{Types: []ledger.EventType{ledger.EventStarted}, Limit: 1}
	started, err := ledger.NewestOf(ctx, db, k, o)
	return err == nil && len(started) > 0 && string(started[0].Data) == string(startedOnce), err
}
