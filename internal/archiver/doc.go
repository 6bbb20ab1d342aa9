// Package archiver removes finished tasks from the tables of a ledger, after their events are in files.
//
// [Run] is one run: the command archive calls it, and a [Service] calls it at intervals. A run
//
//  1. raises archived_until, and takes the snapshot that must see the end of each task that it removes;
//  2. waits for the transactions that were open then: see migrations/00023_archive.sql;
//  3. reads the events that are older than its cutoff, in the order of positions, and chooses the tasks that have ended
//     with one of them;
//  4. stores the events of these tasks in files, if there are any, and has them verified;
//  5. removes the tasks in batches. A batch is a transaction of some milliseconds: it adds the keys, removes events,
//     projected tasks and tags, and records itself as a task of kind taskledger.operation.
//
// A run may be killed at any step, and several may run at once: each task is removed once, with its key. A run that was
// killed between 4 and 5 leaves files with tasks that are still in the tables; the tables count then. The next run
// stores these tasks again.
//
// Readers of the feed hold tasks that they have not read. A subscriber and the relay hold them for Options.Hold longer
// than OlderThan at most; later the tasks are removed, and the reader has missed events. The projector, the scheduler,
// lines and the seal hold them until they have read them.
package archiver
