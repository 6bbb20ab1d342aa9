// Package projector keeps the built-in read models of the ledger: tables that are derived from its events and can be
// dropped and rebuilt.
//
// # Tables
//
//	taskledger.task        the current state of every task, one row each
//	taskledger.task_count  tasks by kind and state, as running totals
//	taskledger.kind_stats  events of each kind and minute, and histograms of waiting and running times
//	taskledger.kind_hour   events of each kind and hour
//	taskledger.task_tag    tasks by their tags
//
// [Runner] follows the ledger's feed and applies it page by page. [ReadTasks], [ReadCounts] and [ReadKindStats] read
// the tables. [Verify] compares the tables with the events, and [RebuildTasks]
// rebuilds them. To read the current state of a task, use ledger.Load, which does not need a projection. To read an
// event's effect on a projection, use [WaitFor].
//
// For tables of your own, use a subscriber: see package outbox.
//
// This package alone writes its tables. It writes its rows of taskledger.cursor through package feed. It inserts no
// event except the records of operators' acts.
//
// # Concurrency
//
// Any number of runners may run, in one process or in many. One transaction writes a page's tables and the cursor row
// after it. The cursor row is written first, as a compare-and-set. If two runners have the same page, one waits, finds
// that the page is applied, and has written nothing. It then stands by for [Config].Standby. There is no lease, no
// clock and no leader: a runner that was killed, stalled or cut off within a page has either committed the whole page
// or nothing of it. A rebuild moves the cursor when it replaces the tables, so that an earlier runner writes nothing
// into them.
//
// # Failure
//
// While the database is unavailable, [Runner.Run] retries. Commits of the runner do not wait for the
// disk. A database that crashes may lose the newest pages together with their cursor rows, and the runner
// applies them again.
//
// Only the event that follows a row's version continues the row of a task. If the versions do not match, the
// task is folded again from its whole history. Causes are an event that the feed delivered late, and a row
// that was changed manually.
package projector
