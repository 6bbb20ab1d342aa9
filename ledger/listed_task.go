package ledger

import "time"

// ListedTask is a task in a list, as projected: without its args, result and progress, which [Load] reads.
type ListedTask struct {
	Key
	Position   Position  `json:"position"` // of its first event
	Shard      Shard     `json:"shard"`
	State      State     `json:"state"`
	Version    Version   `json:"version"`
	Attempt    Attempt   `json:"attempt"`
	Failures   int       `json:"failures"`
	Priority   Priority  `json:"priority"`            // by which the task is ordered: 1 to 4
	Partition  string    `json:"partition,omitempty"` // of its last event
	OrderKey   string    `json:"order_key,omitempty"` // of its last event
	EnqueuedAt time.Time `json:"enqueued_at"`
	UpdatedAt  time.Time `json:"updated_at"`
	Error      string    `json:"error,omitempty"` // of its last failed or buried event

	// Fingerprint of the error of a dead task, see [Event.ErrorFingerprint]. It is empty in other states.
	Fingerprint string `json:"fingerprint,omitempty"`

	// DueAt is the time at which a scheduled or retrying task is released.
	DueAt time.Time `json:"due_at,omitzero"`
}
