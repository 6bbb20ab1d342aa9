// Package dispatcher gives the available tasks of a ledger to its workers. The service is active in one process of a
// ledger; others stand by.
//
// A dispatcher is a cache of the tasks that may begin next. It reads the events of the ledger as they are committed,
// keeps the available tasks of each kind that live workers have, in the order in which they are to begin, and offers
// them to workers that ask. Correctness is in the append of an outcome: a task that was given out twice is fenced.
// Package workers/internal/dispatch has the conversation with workers: its states, messages and rules.
//
// # Reading
//
// A reader of the feed delivers events from the present on. Tasks that became available before are read from the
// projector's list of unfinished tasks, and from the events after the place of the list. The same reads go on when a
// kind has more tasks than fit in memory: the dispatcher keeps a position behind them. So a start costs as much as an
// overflow, and finished history is never read.
//
// # The lease
//
// The active dispatcher has a lease. Its number is the epoch of all messages. The goroutine that reads the feed renews
// it, so a dispatcher that no longer reads loses it. A dispatcher offers nothing before all sessions of workers have
// answered in its epoch, or before its predecessor's lease, and the time for which workers accept an offer, have
// passed. If it cannot renew its lease in time, it forgets everything and stands by.
package dispatcher
