// Package scheduler appends the events that are due. It releases tasks that were scheduled or wait for a retry, and
// expires tasks whose deadline passes while they wait. It also discards the oldest waiting tasks of kinds whose limit
// demands that ([ledger.DiscardOldest]).
//
// Any number of schedulers may run, in any number of processes. They share the work, and nothing is done twice: a
// timer and its event change in one statement, and every append is a compare-and-set. The database's clock decides
// when an event is due; the clock of the scheduler's machine does not matter.
//
// # Timers
//
// A scheduler fires timers in batches, in the order of their due times (batch.go). Three conditions would make it
// late; each is handled in its own file:
//
//   - Many timers of one kind are due. While batches are full, each is followed by some timers of every
//     kind (turn.go).
//   - An open transaction that has appended to a task blocks every batch with a timer of that task. The tasks
//     of such a batch are deferred, and tried again in smaller groups each time (deferred.go).
//   - While a snapshot is held, fired timers stay in the index as dead entries. The scheduler steps over them
//     once and not at every poll (horizon.go).
//
// The timer of a task that has moved on, such as a cancelled one, is removed before it is due (obsolete.go).
//
// # Discarding
//
// A scheduler compares the projector's counts with the limits, and discards the oldest waiting tasks above them
// (discarder.go). It finds them by walking the windows of the feed (backlog.go). One scheduler at a time does it, by a
// lease: two would append to the same tasks, and each would undo the other's groups.
//
// # Predecessors
//
// A scheduler makes tasks available whose predecessors have succeeded, or cancels them (dependents.go). While tasks
// wait, it follows the events that finish other tasks, and keeps which task waits for which (successors.go). Each
// waiting task has a timer at the end of time, so that waiting tasks are found without reading history.
package scheduler
