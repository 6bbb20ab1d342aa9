// Package dispatcher gives the available tasks of a ledger to its workers. The service is active in one process of
// a ledger; others stand by.
//
// A dispatcher is a cache of the tasks that may begin next. It reads the events of the ledger as they are
// committed, keeps the available tasks of each kind that live workers have, and offers them to workers that ask. It
// has no authority: the append of an outcome is a compare-and-set on the version of the task, so a task that was
// given out twice is fenced. A wrong dispatcher costs time, or the second start of an AtLeastOnce handler
// (docs/guarantees.md).
//
// Package workers/internal/dispatch has the conversation with workers: messages, numbers, sums and epochs. This
// comment has everything around it.
//
// # States of a task
//
//	state     meaning                                       left by
//	--------  --------------------------------------------  ------------------------------------------------------
//	ready     it may begin, and waits for room in a worker  an offer: assigned
//	assigned  a session has it, under a number              the report of the session lacks it: doubtful
//	                                                        the end of the session: doubtful
//	running   a worker has begun it that has no session,    the end of the worker's lease: doubtful
//	          or whose session has not answered
//	doubtful  it may have ended, or may begin               a later window, if the task is still there: ready, or
//	                                                        running if such a worker has begun it
//	gone      its head shows that it has ended, and the     a later window: forgotten
//	          feed has not delivered that event yet
//
// In every state an event of the feed that ends the task, or makes it wait, has the dispatcher forget it, and an
// event that makes it available makes it ready under its new version. The started event of a worker that the task
// is not assigned to makes it running, or doubtful if that worker has answered without it or is gone. The events
// with which its own worker records start and progress leave it assigned.
//
// Each input changes states in its own way:
//
//   - Only the feed, and reads of the ledger, make a task known, ready or forgotten.
//   - A report makes assigned tasks doubtful. After a change of the dispatcher it also assigns the tasks that it lists.
//     A task that is known by a report alone must be read from the ledger before it can become ready.
//   - A lease that ends makes doubtful what its worker had. So does a worker that does nothing.
//   - Matching makes ready tasks assigned. It follows each window, report, hint and read.
//
// A later window is one that was opened after the task became doubtful. If the task ended before, that window or an
// earlier one contains the event. So a task is never ready while its outcome is on its way.
//
// A running task that its live worker does not hold is offered to that worker alone, once the worker has answered: a
// restore or a fail-over of the database has undone its outcome.
//
// # Promises to a worker
//
//   - It gets tasks of the kinds and shards in its lease alone, at most as many as it has asked for, of the kind and
//     in all, and never holds more than the capacity in its lease.
//   - No other session is offered a task that it holds while its lease lasts, it answers the active dispatcher, and it
//     begins what it has. A task whose start it has not recorded is offered to others when it is silent.
//   - A task that may have begun elsewhere without a record is marked. Its start must be recorded before its handler
//     runs, so each start of a task that kills its workers is counted.
//   - An offer contains what the ledger has: args of up to 512 bytes, if the task's first event made it available. The
//     worker reads other args.
//   - Each offer repeats the time of the newest report, so the worker can measure how long it was on its way. If the
//     last window was opened more than a second before the offer, the worker reads the tasks.
//   - When another process appends to a task that it has, it gets a recall.
//
// It is not promised that a task is still available when the offer arrives.
//
// # Losses
//
//	what is lost                    what happens
//	------------------------------  ------------------------------------------------------------------------------
//	an offer                        A probe repeats its number within a second. The worker reports that it does not
//	                                hold the tasks, which become doubtful, and then ready.
//	a report                        The next one replaces it, within 500 ms. Sums and holdings are complete in each.
//	a recall                        The worker's next renewal of its lease finds the event.
//	a notification                  The next window brings the task, within 250 ms.
//	the listening connection        Windows are opened every 10 ms. It listens again a second later.
//	the feed's connection           The epoch ends, and the lease is given back. This or another process begins the
//	                                next one.
//	a worker that is killed         Its tasks, and as many as it had asked for, wait for the end of its lease. Then
//	                                others get them, marked.
//	a worker that stops             It gives back what has not begun; others get that after the next window.
//	a worker that does nothing      What it has had for a minute, or for two terms of its lease if they are longer,
//	                                without a record of its start, others get, marked. Its share is halved each time,
//	                                and doubled by each task that it ends.
//	a worker's way to NATS          It records what it runs. When nothing has arrived from it for 5 s, others get what
//	                                it has without a record of its start, marked.
//	a worker's way to PostgreSQL    It begins nothing after 2 s. Its lease ends, and others get its tasks.
//	the dispatcher, killed          Another process takes the lease when its connection has ended, see below.
//	the dispatcher, standing still  Another process takes the lease when it has expired. Afterwards the old one sends
//	                                nothing: its own deadline has passed.
//	a dispatcher's way to NATS      If no worker reports for 5 s, it leaves the lease to others for 2 s.
//	NATS                            Workers in the process of the dispatcher go on, and those that claim in SQL.
//	                                Others finish what they have.
//	PostgreSQL                      The lease cannot be renewed, so the epoch ends. No worker begins anything. After a
//	                                restart the first dispatcher asks for copies.
//	a past of the database          The incarnation differs: the epoch ends, and workers refuse offers of the other
//	                                incarnation. Epochs are counted anew.
//
// # Reading
//
// A reader of the feed delivers events from the present on. Tasks that became available before are read from the
// projector's list of unfinished tasks. The list is exact at its place in the feed, and the events after that place
// are read with it, at most 20,000 in a statement. Without a list its place is the beginning, so these reads go
// through the whole ledger; with one they never read finished history.
//
// A kind has a place of its own up to which its tasks are in memory. A kind that is new to the dispatcher has its
// place at the beginning, so a start and an overflow are the same: the tasks after the place are read when at most
// half as many are ready as fit. The first read of a kind returns up to 1,024 tasks, and each further one eight
// times as many, up to 32,768. While a read runs, the feed goes on. A task that it reports as changed is not taken
// from the read, and events that it skips, because they are behind the place, are read next time.
//
// At most 65,536 tasks of a kind are ready in memory, and 131,072 of all kinds. Beyond 512 kinds each may have 256. A
// task has at most 1 KiB of args and metadata, so this is up to 200 MB. Tasks that are assigned, running or doubtful
// come on top; they are at most as many as the workers may hold.
//
// Only tasks that a live worker takes are in memory. Those of other kinds and shards cost nothing, and fill no memory
// of their kind. When a worker takes further shards, or a kind that none took, the kind's place is the beginning again.
//
// # Order
//
// Tasks of a kind begin in the order of the events that made them available: enqueued, released or interrupted. A
// task whose transaction commits late is sorted in when it is known. If several workers have room, they get equal
// shares of what is ready, up to the room of each. Kinds do not wait for each other.
//
// # The lease and epochs
//
// The active dispatcher has the lease dispatcher for 1.5 s. The goroutine that reads the feed renews it every 300
// ms, so a dispatcher that no longer reads loses it. It sends nothing after the end of its lease, counted from
// before the statement that renewed it. Others look at the lease every 100 ms, and take it when it has expired, or
// when the connection of its holder has ended. Behind a pooler they cannot detect that, and wait for its end.
//
// A physical copy of a database has the same tasks. So the first dispatcher after a start of PostgreSQL asks on NATS
// for 0.4 s whether a dispatcher or a relay of another copy works. After an answer it refuses, records the reason in
// the lease, and tries again. The lease of one that begins has the run of the server, so its successors do not ask.
//
// It does not ask if the relay has made sure in this run, and does not begin while a relay is about to, or refuses.
// After a refusal it begins when nothing has answered for a minute: the original may be restarting. It does not begin
// in a new run while NATS is away.
//
// Each holder has an epoch, one more than the last, and a new pair of keys, the public one in the lease. The
// dispatcher that begins does this in order:
//
//  1. It reads the leases of workers, and asks each session for what it holds, every 50 ms.
//  2. It waits until all sessions have answered. If one does not, it waits until no worker accepts an offer of its
//     predecessor any more: until that lease has ended, and the 2 s for which a worker trusts an offer have passed.
//  3. It applies a window that was opened after that, and is active: only then it reads the list and offers tasks.
//
// Step 3 makes it find each outcome that a worker recorded before it answered. If a worker has not answered, all
// tasks that became available before are marked. That worker's answer may come later; it then keeps what no other
// worker has.
//
// # Hints and latency
//
// The notification of an enqueue names the position of its event. A hint is the task that the dispatcher then reads
// from the ledger, at once and ahead of the window that delivers it. Up to 100 share a statement. Any login can
// notify, and a notification can be late, so the statement returns only tasks that are still available by their
// first event and that no window has delivered, and a hint is not taken if a window was applied after the read
// began. Feeds that follow the dispatcher get the events by a window 50 ms later.
//
// Notifications make commits wait for each other. Above about 1,000 events a second windows are opened in place of
// them, every 5 ms or every [Config].Latency, if that is longer. So they are where notifications cannot arrive:
// behind a pooler, and on a server with prepared transactions, with 10 ms between windows that find nothing.
//
// # Pauses and sessions
//
// Leases of workers and paused kinds are read every 500 ms, and when a report of an unknown session arrives. Tasks
// of a paused kind stay ready. A worker gets nothing before its lease is in the database: its public key there
// seals the conversation.
//
// # Workers of the same process
//
// Messages between the dispatcher and a worker of its process go by memory, unsealed (workers/internal/local).
// Neither needs NATS for that. All rules of the conversation are the same.
//
// # Workers that claim in SQL
//
// A lease without a session belongs to a worker that claims its tasks (docs/languages.md). It gets no offers. Its
// tasks are running when the feed has delivered their starts, and are offered when its lease has ended.
//
// A kind may have both sorts of workers, and the dispatcher offers its tasks as always. A pool begins most tasks
// without a record, so while others claim a kind, it records each start before the handler: of two starts one is
// refused. Its lease lists the kind, under records, when all that it has begun is recorded. Until the leases of all
// live pools list it, taskledger.claim and claim_next return nothing.
package dispatcher
