// Package attempt runs one attempt at one task: from the head of the task to its recorded outcome and
// the end of its being in flight.
//
//	head ──▶ Decide ──▶ New ──▶ (a slot) ──▶ Run ──▶ claim ──▶ handler ──▶ finish ──▶ record ──▶ end
//	                                                             │             ├─▶ commit: succeeded
//	                                                             └── note      └─▶ undo, conclude: any other outcome
//
// The four ways in which an attempt has a transaction differ in the [transactor] alone: a transaction of its own
// ([ownTx]), one that it shares with others ([sharedTx]), that of its caller ([callerTx]), or none ([noTx]).
//
// The package does not depend on handlers or hooks: package workers passes them in as [Work] and [Errors].
package attempt
