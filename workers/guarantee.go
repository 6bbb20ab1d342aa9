package workers

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
	AtMostOnce Guarantee = "at most once"
)

// slots is how many handlers of a kind run at a time by default.
func (g Guarantee) slots() int {
	if g == ExactlyOnce {
		return DefaultSlots
	}
	return DefaultSlotsOutside
}
