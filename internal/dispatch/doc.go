// Package dispatch is the conversation between the dispatcher and the workers that decides who begins which task next.
//
// [Dispatcher] and [Worker] are state machines without a clock, a socket or a goroutine. Events of the ledger and
// messages go in, messages come out. TestExplore searches every order in which two of each can meet, with lost, copied
// and late messages, and shows for each rule below how a task is lost or begins twice without it.
//
// # The truth
//
// The ledger is the truth: an append is a compare-and-set on the version of a task. The dispatcher is a cache of the
// tasks that may begin next. It may forget everything, and two may run at once. A wrong offer costs time or a second
// start of an AtLeastOnce handler, never a second effect.
//
// # A task in the dispatcher
//
//	(ledger) ──event or read──▶ ready ──offer──▶ assigned ──any event that ends it──▶ forgotten
//	                             ▲                  │
//	                             │                  │ the worker no longer holds it, or its session has ended
//	                             └──── doubtful ◀───┤
//	                               ▲                │ "started" by another worker
//	                               └─── running ◀───┘
//
// A doubtful task becomes ready when the dispatcher has applied a window of the feed that was opened after the task
// became doubtful. If the task ended meanwhile, that window contains the event. A running task belongs to a worker
// without a session here; it becomes doubtful when that worker's lease ends.
//
// # Limits
//
// A limit of starts has a gate, or one for each partition or order key. The gate counts the tasks that hold a permit,
// by the events of the feed, and the tasks that are assigned; the limit less these are offered. Of a rate it counts the
// starts of the last window. A task whose worker is gone still holds its permit, and passes a closed gate if its start
// is recorded. The permits and tokens in use are read when the limit is set; until then its gates are closed. The start
// of the task takes the permit, and the database refuses it above the limit. So two dispatchers that know nothing of
// each other cannot exceed the limit. Tasks at a closed gate of their value are parked there, so that tasks behind them
// are offered.
//
// # Messages
//
// A worker sends a [Report], the dispatcher an [Offer]. Each report describes the worker's side completely, so that the
// next one replaces a lost one. An offer without tasks is a probe: it repeats the numbers that a lost offer carried.
// Messages of one direction use one subject, so that they arrive in the order in which they were sent, unless they are
// lost, copied or delayed.
//
//   - A session is one life of a worker process. Its name follows from the worker's id and a public key (see
//     [SessionName]), and is in every message.
//   - An epoch is the number of a dispatcher. Epochs only increase within one incarnation of the database. A worker
//     follows the highest epoch that it has received, and its numbers start from zero in it.
//   - Each task of an offer has a number, which increases within session and epoch. A worker refuses a number unless it
//     is above the highest number received. So a report "received up to n, holds these" stays true for the numbers that
//     it leaves out, however late it arrives.
//   - Credit is two sums for each kind: the tasks that the worker has asked for, and the tasks that it was given. The
//     latest report counts, so a worker takes a request back when its handlers become slow. An offer repeats the sums
//     that are not confirmed yet.
//   - A lease may end and be renewed within an epoch. The session's numbers then continue above all earlier ones, and
//     its requests start again.
//   - Holdings from an earlier epoch have the numbers -n+1 to 0. The first reports of an epoch list them with their
//     keys, and the dispatcher adopts each once. A new dispatcher offers nothing before every live session has answered
//     so, or is unable to accept an offer of its predecessor.
//   - A report carries the worker's own time, and an offer repeats the latest time received. It shows how old the
//     dispatcher's view is, without a comparison of two clocks.
//
// The caller decides about time: when a session's lease has ended, when a window was opened, when to send a probe.
// Neither machine is safe for concurrent use.
package dispatch
