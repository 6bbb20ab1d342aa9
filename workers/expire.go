package workers

import (
	"context"
	"encoding/json"

	"github.com/taskledger/taskledger/ledger"
)

// expiredData is the data of an expired event, as the scheduler's is.
var expiredData = json.RawMessage(`{"reason":"finish_by"}`)

// expire records that the deadline of a task has passed before this attempt began. One that a
// lost worker has begun is given back first: what runs cannot expire.
func (k *kind) expire(a *attempt) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	requests := []ledger.AppendRequest{a.request(ledger.EventExpired, expiredData)}
	if a.running {
		requests = append([]ledger.AppendRequest{a.request(ledger.EventInterrupted, expiredData)}, requests...)
	}
	k.recorded(a, OutcomeExpired, a.appendAll(ctx, requests...))
}

// failedTooLate records an attempt that ended at the deadline of its task, and that the task has
// expired.
func (k *kind) failedTooLate(ctx context.Context, a *attempt, cause error) {
	k.recorded(a, OutcomeExpired, a.appendAll(ctx,
		a.request(ledger.EventFailed, failedJSON(a, cause)), a.request(ledger.EventExpired, expiredData)))
}
