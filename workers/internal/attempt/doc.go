// Package attempt runs one attempt at one task: from the task's head to its recorded outcome, when the task is no
// longer in flight.
//
//	head ──▶ Decide ──▶ New ──▶ (a slot) ──▶ Run ──▶ claim ──▶ handler ──▶ finish ──▶ record ──▶ end
//	                                                             │             ├─▶ commit: succeeded
//	                                                             └── note      └─▶ undo, conclude: any other outcome
//
// Attempts have transactions in four ways, which differ in the [transactor] alone: a transaction of their own
// ([ownTx]), shared with other attempts ([sharedTx]), the caller's ([callerTx]), or none ([noTx]).
//
// The package does not depend on handlers or hooks: package workers passes them in as [Work] and [Errors].
package attempt
