package workers

import (
	"context"
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/atmostonce"
)

// Guarantee is what a kind promises about how often the effects of a task happen. All workers of
// a kind must agree on it.
type Guarantee string

// The guarantees; docs/guarantees.md compares them.
const (
	// ExactlyOnce: the effects are rows that commit together with the outcome ([Register],
	// [RegisterSQL]).
	ExactlyOnce Guarantee = "exactly once"
	// AtLeastOnce: the effects are elsewhere, and may happen again ([RegisterAtLeastOnce]).
	AtLeastOnce Guarantee = "at least once"
	// AtMostOnce: the effects are elsewhere, and never happen again by themselves
	// ([RegisterAtMostOnce]).
	AtMostOnce Guarantee = atmostonce.Guarantee
)

// slots is how many handlers of a kind run at a time by default.
func (g Guarantee) slots() int {
	if g == ExactlyOnce {
		return DefaultSlots
	}
	return DefaultSlotsOutside
}

// GuaranteeError says that a worker was refused, since one that lives has the same kind with another
// guarantee: nobody could rely on either.
type GuaranteeError struct {
	Kind   ledger.Kind
	Wanted Guarantee // of the worker that was refused
	Found  Guarantee // of the other one
	Worker string    // which that is
}

func (e *GuaranteeError) Error() string {
	return fmt.Sprintf("kind %s is to be done %s, and worker %s does it %s: all workers of a kind must agree; stop that one "+
		"(one that was lost counts until its lease is over), or have this one say that it Replaces such (KindConfig)",
		e.Kind, e.Wanted, e.Worker, e.Found)
}

// checkGuarantees returns a [*GuaranteeError] for each kind of which a live worker says otherwise.
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
			if k := mine[other.Kind]; k != nil && other.Guarantee != k.guarantee && other.Guarantee != k.config.Replaces {
				faults = append(faults, &GuaranteeError{Kind: k.Name, Wanted: k.guarantee, Found: other.Guarantee, Worker: w.ID})
			}
		}
	}
	return errors.Join(faults...)
}

// guarantees are the names of the kinds with each guarantee, as leases have them; ExactlyOnce goes
// without saying.
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
