// Package operator is what a person does to tasks: release, bury, cancel and reschedule them, one or many, and
// pause whole kinds. It also reads what a person must know: dead tasks, kinds without workers, paused kinds.
//
// What is done to a task is an event with an actor and a reason, appended by compare-and-set. Two operators, or
// an operator and a worker, never do the same twice; the loser gets the state that it lost against.
package operator
