package scheduler

import (
	"context"

	"github.com/taskledger/taskledger/ledger"
)

// Hook contains functions that a [Scheduler] calls after its actions, for metrics. Each may be nil. They must be safe
// for concurrent use, and delay the scheduler while they run. A panic is not recovered.
type Hook struct {
	// AfterBatch is called after a batch of due timers was committed.
	AfterBatch func(ctx context.Context, b Batch)
	// AfterDiscard is called after this scheduler discarded waiting tasks of a kind because too many waited
	// ([ledger.DiscardOldest]). tasks is the number of tasks that it discarded.
	AfterDiscard func(ctx context.Context, kind ledger.Kind, tasks int)
}
