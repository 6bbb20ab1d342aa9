package workers

import (
	"context"
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/atmostonce"
)

// Guarantee is how often the effects of a task of a kind may happen. All workers of a kind must have the same.
type Guarantee string

// The guarantees; docs/guarantees.md compares them.
const (
	// ExactlyOnce: the effects are rows that commit together with the outcome ([Register],
	// [RegisterSQL]).
	ExactlyOnce Guarantee = "exactly once"
	// AtLeastOnce: the effects are elsewhere, and may happen again ([RegisterAtLeastOnce]).
	AtLeastOnce Guarantee = "at least once"
	// AtMostOnce: the effects are elsewhere, and are never repeated automatically ([RegisterAtMostOnce]).
	AtMostOnce Guarantee = atmostonce.Guarantee
)

// slots returns the default number of slots of a kind.
func (g Guarantee) slots() int {
	if g == ExactlyOnce {
		return DefaultSlots
	}
	return DefaultSlotsOutside
}

// GuaranteeError reports that a worker was refused because a live worker has the same kind with another guarantee.
type GuaranteeError struct {
	Kind   ledger.Kind
	Wanted Guarantee // guarantee of the refused worker
	Found  Guarantee // guarantee of the other worker
	Worker string    // ID of the other worker
}

func (e *GuaranteeError) Error() string {
	return fmt.Sprintf(
		"kind %s: this worker's guarantee is %s, that of worker %s is %s: stop that worker (a lost one counts until "+
			"its lease expires), or set KindConfig.Replaces to its guarantee",
		e.Kind,
		e.Wanted,
		e.Worker,
		e.Found,
	)
}

// checkGuarantees returns a [*GuaranteeError] for each kind of which a live worker has another guarantee.
func (p *Pool) checkGuarantees(ctx context.Context, db ledger.DB) error {
	all, err := ReadWorkers(ctx, db)
	if err != nil {
		return err
	}
	mine := make(map[ledger.Kind]*kind)
	for _, k := range p.registered() {
		mine[k.Name] = k
	}
	var faults []error
	for _, w := range all {
		if !w.Alive || w.ID == p.id {
			continue
		}
		for _, other := range w.Kinds {
			if k := mine[other.Kind]; k != nil && other.Guarantee != k.guarantee &&
				other.Guarantee != k.config.Replaces {
				faults = append(faults, &GuaranteeError{
					Kind: k.Name, Wanted: k.guarantee, Found: other.Guarantee, Worker: w.ID,
				})
			}
		}
	}
	return errors.Join(faults...)
}

// guarantees are the names of the kinds with each guarantee, as leases store them. ExactlyOnce is omitted.
type guarantees map[Guarantee][]string

func guaranteesOf(kinds []*kind) guarantees {
	g := make(guarantees)
	for _, k := range kinds {
		if k.guarantee != ExactlyOnce {
			g[k.guarantee] = append(g[k.guarantee], string(k.Name))
		}
	}
	return g
}

func (g guarantees) byKind() map[string]Guarantee {
	by := make(map[string]Guarantee)
	for guarantee, names := range g {
		for _, name := range names {
			by[name] = guarantee
		}
	}
	return by
}
