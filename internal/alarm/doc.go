// Package alarm notifies people of problems that need an action: by mail, by a webhook, by a command.
//
// A [Watcher] polls the ledger. It finds
//
//   - news: tasks have died, a schedule has passed over firings;
//   - conditions that begin and end: conditions of package health with a rule, more dead tasks of a kind than its
//     limit, and a task that has been available for longer than its limit.
//
// # An alarm is a task
//
// Each receiver has a chain of alarms: tasks of kind [Kind] with the biz_ids "<receiver>/0000000000000000001",
// "<receiver>/0000000000000000002" and so on. An alarm's args contain its message and the baseline after it: everything
// reported to the receiver so far. The next alarm reports the difference to the baseline. There is no other state, so
// restarts lose and repeat nothing.
//
//	newest alarm of the receiver   the watcher
//	-----------------------------  --------------------------------------------------------------
//	none                           reports everything
//	unfinished                     delivers it; news waits
//	succeeded                      reports the news since, once Every has passed
//	dead: it cannot be delivered   reports the news since the alarm before it, so that none is lost
//	cancelled, discarded, expired  treats it as delivered: an operator decided so
//
// A receiver that was down for a day gets at most two messages when it is up, and ten thousand dead tasks are one
// message. The watcher first gathers news for a while ([Rules].Gather).
//
// # Delivery
//
// The watcher appends started, then succeeded or failed, as for any task. It retries a failed delivery eight times
// within two hours, by the database's clock. It delivers itself and not through a worker pool, because alarms must
// arrive while relay, JetStream or projector are unavailable: a delivery needs PostgreSQL only. A webhook is sent and
// signed as all others are ([webhooks.Endpoint]), without its subscribers and workers.
//
// Any number of watchers may run. The watcher that serves a receiver holds the lock of a row in an open transaction,
// which ends with its process or its connection. The key of an alarm contains the next number, so only one of two
// watchers creates it. A watcher that is killed before it commits the alarm has reported nothing, and the next watcher
// finds the same news. A watcher that is killed during a delivery leaves a started task, which the next watcher
// delivers again: delivery is at least once. Each message contains the alarm's key, so that a receiver can detect
// repetitions.
//
// Alarms never report alarms: tasks of their kind are excluded everywhere.
package alarm
