// Package lastevent has what a worker has read of the last event of a task, for the append of the next one.
package lastevent

// Read is a last event as it was read from the primary. Without Incarnation, none was read.
type Read struct {
	// Incarnation is that of the database and its server, by the statement that read the event:
	// taskledger.session_incarnation().
	Incarnation string
	State       string // of the task
	Version     int32
	Attempt     int32
	Shard       int16
}
