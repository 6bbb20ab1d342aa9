// Package alarm tells people what they should see to: by mail, by a webhook, by a command.
//
// A [Watcher] looks at the ledger now and then. What it finds are
//
//   - news: tasks have gone dead, a schedule has passed slots over;
//   - conditions that hold or do not: more dead tasks of a kind than a limit, a task that has been
//     available for longer than one, relay or projection behind, a schedule overdue.
//
// # An alarm is a task
//
// For each receiver there is a chain of alarms: tasks of the kind [Kind] with the biz_ids
// "<receiver>/000000000001", "<receiver>/000000000002" and so on. The args of an alarm are its
// message, and what its receiver knows once it has it. So the next one says what is new since,
// whatever has been restarted meanwhile, and there is no state but the ledger's.
//
//	newest alarm of the receiver    what a watcher does
//	------------------------------  ------------------------------------------------------------
//	none                            tells everything
//	unfinished                      delivers it; what is new waits
//	succeeded                       tells what is new since, if Every has passed
//	dead: it could not be delivered tells what is new since the one before, so nothing gets lost
//	cancelled, discarded, expired   takes it for told: somebody wanted it so
//
// So a receiver that was down for a day gets at most two messages when it is back, and ten thousand
// dead tasks are one message. What is new is gathered for a while first ([Rules].Gather).
//
// # Delivery
//
// started, then succeeded or failed, are appended like those of any task; a failed delivery is
// tried again by the [Retry] policy, by the database's clock. A watcher does that itself and not a
// worker pool: alarms must reach people while relay, JetStream or projector are away. All that is
// needed is PostgreSQL.
//
// Any number of watchers may run. Who serves a receiver holds an advisory lock in an open
// transaction, which ends with its process or its connection; and each alarm's key is made of the
// number before, so that of two watchers one makes it. A watcher that is killed before the alarm
// is committed has told nothing, and the next one finds the same news. One that is killed while it
// delivers leaves a started task, which the next one delivers again: at least once. Each
// message carries the alarm's key for those who want it once.
//
// Alarms never alarm about themselves: their own kind is left out of everything.
package alarm
