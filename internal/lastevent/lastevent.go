// Package lastevent holds a task's last event as a worker has read it, for the append of the next event.
package lastevent

// Read is a last event, as read from the primary. Without Incarnation, no event was read.
type Read struct {
	// Incarnation identifies the database and its server. The statement that reads the event returns it by
	// taskledger_internal.session_incarnation().
	Incarnation string
	State       string // of the task
	Version     int32
	Attempt     int32
	Shard       int16
}
