// Package projector keeps the read models of the ledger: tables that are derived from its events and can be
// dropped and rebuilt.
//
// # Tables
//
//	taskledger.task        the current state of every task, one row each
//	taskledger.task_count  tasks by kind and state, as running totals
//
// [Projector] follows the ledger's feed and applies it page by page. [ReadTasks] and [ReadCounts] read the
// tables, and [ReadLag] returns their delay. [Verify] compares the tables with the events. To read the
// current state of a task, use ledger.Load, which needs no projection.
//
// This package alone writes both tables; by package feed it writes its rows of taskledger.cursor. It inserts no event.
//
// # Concurrency
//
// Any number of projectors of one name may run, in one process or in many. One transaction writes a page's
// tables and the cursor row after it. The cursor row is written first, as a compare-and-set. Of two
// projectors with the same page, one waits, finds that the page is applied, and has written nothing. It then
// stands by for [Config].Standby. There is no lease, no clock and no leader: a projector that was killed,
// stalled or cut off within a page has either committed the whole page or nothing of it.
//
// # Failure
//
// While the database is unavailable, [Projector.Run] retries. Commits of the projector do not wait for the
// disk. A database that crashes may lose the newest pages together with their cursor rows, and the projector
// applies them again.
//
// Only the event that follows a row's version continues the row of a task. If the versions do not match, the
// task is folded again from its whole history. Causes are an event that the feed delivered late, and a row
// that was changed manually.
package projector
