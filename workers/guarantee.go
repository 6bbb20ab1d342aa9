package workers

import (
	"fmt"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// Guarantee is how often the effects of a task of a kind may happen, see [Handle]. All workers of a kind must agree on
// it.
type Guarantee string

// The guarantees; docs/guarantees.md compares them.
const (
	// ExactlyOnce: the effects are rows that commit together with the outcome.
	ExactlyOnce Guarantee = "exactly once"
	// AtLeastOnce: the effects are elsewhere, and may happen again.
	AtLeastOnce Guarantee = "at least once"
	// AtMostOnce: the effects are elsewhere, and are never repeated automatically.
	AtMostOnce Guarantee = attempt.AtMostOnce
)

// GuaranteeError reports that a worker was refused because a live worker runs the same kind with another guarantee.
type GuaranteeError struct {
	Kind   ledger.Kind
	Wanted Guarantee // guarantee of the refused worker
	Found  Guarantee // guarantee of the other worker
	Worker string    // ID of the other worker
}

func (e *GuaranteeError) Error() string {
	return fmt.Sprintf("kind %s: this worker's guarantee is %s, but worker %s's is %s: "+
		"stop that worker (a lost one counts until its lease expires), or set KindConfig.Replaces to its guarantee",
		e.Kind, e.Wanted, e.Worker, e.Found)
}

// guarantees are the names of the kinds with each guarantee, as leases store them. ExactlyOnce is omitted.
type guarantees map[Guarantee][]string

func (g guarantees) byKind() map[string]Guarantee {
	by := make(map[string]Guarantee)
	for guarantee, names := range g {
		for _, name := range names {
			by[name] = guarantee
		}
	}
	return by
}
