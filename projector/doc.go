// Package projector keeps the read models of the ledger: tables that are derived from its
// events and can be dropped and made again.
//
// # What is kept
//
//	taskledger.task        the current state of every task, one row each
//	taskledger.task_count  tasks by kind and state, as running totals
//
// [Projector] follows the ledger's feed and applies it page by page. [ReadTasks], [ReadCounts] and
// [ReadLag] read what is kept and how late it is; [Verify] compares it with the events. A task
// that must be read as it is now is read with ledger.Load, which needs no projection.
//
// # Concurrency
//
// Any number of projectors of one name may run, in one process or in many. A page's tables and
// the cursor row behind it are written by one transaction, and the cursor row comes first: it is
// a compare-and-set, so of two projectors with the same page one waits, is told that the page is
// no longer its own, and has written nothing. It then stands by for [Config].Standby. There is no
// lease, no clock and no leader: a projector that was killed, stalled or cut off in mid-page has
// either committed the whole page or nothing of it.
//
// # Failure
//
// While the database is away, [Projector.Run] tries again for ever. Commits of the projector do
// not wait for the disk: a database that crashes may forget the newest pages, together with the
// cursor that says they were applied, and they are applied again.
//
// A task's row is only ever continued by the event that follows its version. Where that does not
// fit, because the feed delivered an event late or the row was changed by hand, the task is folded
// anew from its whole history.
package projector
