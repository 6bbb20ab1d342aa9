package scheduler

import (
	"context"

	"github.com/taskledger/taskledger/ledger"
)

// Hook is called after actions of a [Scheduler], for metrics. Embed [HookDefaults] and write the methods that are
// needed: the compiler checks them, and later versions may add others. Its methods must be safe for concurrent use,
// and delay the scheduler while they run. A panic is not recovered.
type Hook interface {
	// AfterBatch is called after a batch of due timers was committed.
	AfterBatch(ctx context.Context, b Batch)
	// AfterDiscard is called after this scheduler discarded waiting tasks of a kind because too many waited
	// ([ledger.DiscardOldest]). tasks is the number of tasks that it discarded.
	AfterDiscard(ctx context.Context, kind ledger.Kind, tasks int)

	embedsHookDefaults()
}

// HookDefaults is a [Hook] that does nothing, to be embedded.
type HookDefaults struct{}

// AfterBatch does nothing.
func (HookDefaults) AfterBatch(context.Context, Batch) {}

// AfterDiscard does nothing.
func (HookDefaults) AfterDiscard(context.Context, ledger.Kind, int) {}

func (HookDefaults) embedsHookDefaults() {}
