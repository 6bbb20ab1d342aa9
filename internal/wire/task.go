package wire

import (
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Tasks is the body of a call for several tasks, such as POST /v1/tasks:batch, and its answer in the same order.
type Tasks[T any] struct {
	Tasks []T `json:"tasks"`
}

// Change is the body of the calls that release, bury and reschedule a task.
type Change struct {
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`  // of a reschedule
	In     float64   `json:"in,omitempty"` // of a reschedule: a delay in seconds, in place of At
	// Priority of a reschedule is the new priority of the task. Without At and In its time does not change.
	Priority ledger.Priority `json:"priority,omitempty"`
}
