// Package projector keeps the read models of the ledger: tables that are derived from its events and can be
// dropped and rebuilt.
//
// # Tables
//
//	taskledger.task        the current state of every task, one row each
//	taskledger.task_count  tasks by kind and state, as running totals
//	taskledger.kind_stats  events of each kind and minute, and histograms of waiting and running times
//
// [Runner] follows the ledger's feed and applies it page by page. [ReadTasks], [ReadCounts] and [ReadKindStats]
// read the tables, and [ReadLag] returns their delay. [Verify] compares the tables with the events, and
// [RebuildTasks] makes them anew. To read the current state of a task, use ledger.Load, which needs no
// projection. To read what a projection has made of an event, use [WaitFor].
//
// # Projections of yours
//
// A [Projection] in [Config] has tables of its own, in a schema that has its name. It has its own cursor: one
// that is slow or stopped holds up no other. The login of the program needs the role relay, and CREATE on the
// database to make schemas. An event that Apply fails for stops the projection, or is parked with the later
// events of its task; status reports it, and [RetryParkedTask] and [SkipParkedTask] continue. A higher
// [Projection].Version is built beside the tables in use and replaces them when it has caught up, as [Rebuild]
// does. [VerifyProjection] returns the rows that differ.
//
// This package alone writes its tables; by package feed it writes its rows of taskledger.cursor. It inserts no
// event except the records of operators' acts.
//
// # Concurrency
//
// Any number of runners may run, in one process or in many. One transaction writes a page's
// tables and the cursor row after it. The cursor row is written first, as a compare-and-set. Of two
// runners with the same page, one waits, finds that the page is applied, and has written nothing. It then
// stands by for [Config].Standby. There is no lease, no clock and no leader: a runner that was killed,
// stalled or cut off within a page has either committed the whole page or nothing of it. A rebuild moves the
// cursor when it replaces the tables, so that a runner which began before writes nothing into them.
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
