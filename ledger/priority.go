package ledger

import "strconv"

// Priority decides which of the available tasks of a kind begins first: a task of a lower number before a task of a
// higher one. While tasks of several priorities wait, each 16th is the task that has waited longest, whatever its
// priority, so that none starves. The zero value stands for [PriorityNormal].
//
// Each event of a task stores the task's priority.
type Priority int

// The priorities.
const (
	PriorityUrgent Priority = 1
	PriorityHigh   Priority = 2
	PriorityNormal Priority = 3 // the default
	PriorityLow    Priority = 4
)

// Level returns the priority by which a task is ordered: p, or [PriorityNormal] if p is not a priority.
func (p Priority) Level() Priority {
	if p < PriorityUrgent || p > PriorityLow {
		return PriorityNormal
	}
	return p
}

// String returns the name of the priority by which a task is ordered: urgent, high, normal or low.
func (p Priority) String() string {
	switch p.Level() {
	case PriorityUrgent:
		return "urgent"
	case PriorityHigh:
		return "high"
	case PriorityLow:
		return "low"
	default:
		return "normal"
	}
}

// Validate returns an [*InvalidError] unless p is 1 to 4, or 0 for the default.
func (p Priority) Validate() error {
	if p < 0 || p > PriorityLow {
		rule := "must be between 1 (urgent) and 4 (low), or 0 for the default"
		return &InvalidError{Field: "priority", Value: strconv.Itoa(int(p)), Rule: rule}
	}
	return nil
}
