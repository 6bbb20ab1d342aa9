// Package operator contains the actions of an operator on tasks: release, bury, cancel and reschedule one task or
// many, and pause whole kinds. [ledger.Cancel] and the like change a task in a transaction of the caller. The package
// also reads dead tasks, kinds without workers and paused kinds.
//
// Each change of a task is an event with an actor and a reason, appended by compare-and-set. Two operators, or an
// operator and a worker, never apply the same change twice; the later one gets an error with the current state.
package operator
