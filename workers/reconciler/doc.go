// Package reconciler makes tasks available again whose message is gone from the stream while no worker runs
// them: the message was acknowledged by mistake, expired by the stream's MaxAge, or was removed.
//
// Workers acknowledge a message only after its task has moved on. So if a message was acknowledged or removed
// and its task has no later event, no worker will receive the task.
//
// # How a lost task is recognized
//
// Its age plays no part. The position of its message in the stream decides:
//
//   - For each of a kind's two consumers the reconciler reads the floor: the sequence up to which the consumer
//     delivers nothing any more (floors.go).
//   - The relay's cursor holds which events were published at or below that sequence (sql/published.sql).
//   - A task is lost if its last waking event is one of these (sql/lost.sql).
//
// A task whose message still waits is left alone, however long it waits. While the relay republishes after a loss of
// the whole stream, the reconciler does nothing.
//
// A running task is not made available while the lease of its worker is alive. Its message is sent again, and reaches
// that worker (wake.go). A worker that has the task in flight adopts the message. A worker that has ended the task, in
// a past that a restore or a fail-over of the database has undone, continues it.
//
// A kind without consumers is checked once its first worker has created them. The reconciler finds candidates in
// the projector's list of tasks that are unfinished for a while. So a pass costs what is unfinished, and it
// needs a running projector. While that list is absent, is being made or is of another database, a pass reads all
// tasks. Any number of reconcilers may run: each append is a compare-and-set.
package reconciler
