// Package dispatcher gives the available tasks of a ledger to its workers. The service is active in one process of
// a ledger; others stand by.
//
// A dispatcher is a cache of the tasks that may begin next. It reads the events of the ledger as they are committed,
// keeps the available tasks of each kind that live workers run, and offers them to workers that ask. It has no
// authority. The append of an outcome is a compare-and-set on the version of the task, so a task that was given out
// twice is fenced. A wrong dispatcher costs time, or the second start of an AtLeastOnce handler (docs/guarantees.md).
//
// Package internal/dispatch specifies the conversation with workers: messages, numbers, sums and epochs. This
// comment specifies everything around it.
//
// # States of a task
//
//	state     meaning                                       left by
//	--------  --------------------------------------------  ------------------------------------------------------
//	ready     it may begin, and waits for room in a worker  an offer: assigned
//	assigned  a session holds it, under a number            the report of the session lacks it: doubtful
//	                                                        the end of the session: doubtful
//	running   a worker without a session, or whose session  the end of the worker's lease: doubtful
//	          has not answered, has begun it
//	doubtful  it may have ended, or may begin               a later window, if the task is still there: ready, or
//	                                                        running if such a worker has begun it
//	gone      its head shows that it has ended, and the     a later window: forgotten
//	          feed has not delivered that event yet
//
// In every state, an event that ends the task or makes it wait removes it from memory, and an event that makes it
// available makes it ready under its new version. A started event of a worker that the task is not assigned to makes
// it running, or doubtful if that worker has answered without the task or is gone. The start and progress events of
// its own worker leave it assigned.
//
// Each input changes states in its own way:
//
//   - Only the feed, and reads of the ledger, make a task known, ready or forgotten.
//   - A report makes assigned tasks doubtful. After a change of the dispatcher it also assigns the tasks that it
//     lists. A task that is known by a report alone must be read from the ledger before it can become ready.
//   - The end of a lease makes its worker's tasks doubtful. So does a worker that does nothing.
//   - Matching makes ready tasks assigned. It follows each window, report, hint and read.
//
// A later window is a window that was opened after the task became doubtful. If the task ended before, that window or
// an earlier one contains the event. So a task is never ready while its outcome is on its way.
//
// A running task that its live worker does not hold is offered to that worker alone, once the worker has answered: a
// restore or a fail-over of the database has undone its outcome.
//
// # Promises to a worker
//
//   - It gets only tasks of the kinds and shards in its lease, and at most as many as it has asked for, of each kind
//     and in all. It never holds more than the capacity in its lease.
//   - No other session is offered a task that it holds while its lease lasts, it answers the active dispatcher, and
//     it begins the tasks that it holds. When it is silent, a task whose start it has not recorded is offered to
//     others.
//   - A task that may have begun elsewhere without a record is marked. Its start must be recorded before its handler
//     runs, so each start of a task that kills its workers is counted.
//   - An offer contains the ledger's args, up to 512 bytes, if the task's first event made it available, or lined it up
//     and this dispatcher gave it its turn. The worker reads other args.
//   - Each offer repeats the time of the newest report, so the worker can measure how long it was on its way. If the
//     last window was opened more than a second before the offer, the worker reads the tasks.
//   - When another process appends to one of its tasks, it gets a recall.
//
// It is not promised that a task is still available when the offer arrives.
//
// # Losses
//
//	loss                            consequence
//	------------------------------  ------------------------------------------------------------------------------
//	an offer                        A probe repeats its number within a second. The worker reports that it does not
//	                                hold the tasks, which become doubtful, and then ready.
//	a report                        The next one replaces it, within 500 ms. Sums and holdings are complete in each.
//	a recall                        The worker's next renewal of its lease finds the event.
//	a notification                  The next window brings the task, within 250 ms.
//	the listening connection        Windows are opened every 10 ms. It listens again a second later.
//	the feed's connection           The epoch ends, and the lease is given back. This or another process begins the
//	                                next epoch.
//	a worker that is killed         Others get its tasks, marked: 5 s after its last report, or at the end of its
//	                                lease if their start is recorded. Up to as many more as it had asked for, which
//	                                may be on their way to it, are among them.
//	a worker that stops             It gives back tasks that have not begun; others get them after the next window.
//	a worker that does nothing      Others get, marked, the tasks that it has held for a minute, or for two terms of
//	                                its lease if they are longer, without recording their start. Each time it
//	                                may hold half as many tasks; each task that it ends doubles that again.
//	a worker's way to NATS          It records the tasks that it runs. When no report of it has arrived for 5 s,
//	                                others get, marked, its tasks whose start is not recorded.
//	a worker's way to PostgreSQL    It begins nothing after 2 s. Its lease ends, and others get its tasks.
//	the dispatcher, killed          Another process takes the lease when its connection has ended, see below.
//	the dispatcher, standing still  Another process takes the lease when it has expired. Afterwards the old dispatcher
//	                                sends nothing: its own deadline has passed.
//	a dispatcher's way to NATS      If no worker reports for 5 s, it leaves the lease to others for 2 s.
//	NATS                            Workers in the dispatcher's process, and workers that claim in SQL, continue.
//	                                Others finish the tasks that they hold.
//	PostgreSQL                      The lease cannot be renewed, so the epoch ends. No worker begins anything. After a
//	                                restart the first dispatcher asks whether another copy of the database works.
//	a restore to an earlier state   The incarnation differs: the epoch ends, and workers refuse offers of the other
//	                                incarnation. Epochs are counted from the beginning.
//
// # Reading
//
// A reader of the feed delivers events from the present on. Tasks that became available earlier are read from the
// projector's list of unfinished tasks. The list is exact at its place in the feed; the events after that place are
// read with it, at most 20,000 in a statement. With a list, these reads never touch finished history. While no
// projector has made one, they go through the whole ledger.
//
// Each priority and partition of a kind keeps its own place, up to which its tasks are in memory. The dispatcher reads
// the tasks after the place whenever they fill at most half of their memory. The places of a new kind are at the
// beginning, so a start works like an overflow. The first read of a partition returns up to 1,024 tasks, and each
// further read eight times as many, up to 32,768 for a whole kind. So no priority or partition hides another, however
// many tasks it may contain. Partitions that are only in the ledger are found by stepping over the index of the list.
//
// While a read runs, the feed goes on. Tasks that it reports as changed are not taken from the read. Tasks that become
// available meanwhile, after the place, are taken with the read, so that reads end although tasks keep arriving. Those
// that exceed half of the kind's memory are read next time.
//
// At most 65,536 tasks of a kind and priority are ready in memory, and 131,072 of all. Beyond 512 kinds, and while the
// memory is full, a kind and priority may have 256. A task has at most 1 KiB of args and metadata, so this is up to 200
// MB. Tasks that are assigned, running or doubtful come on top, and ready tasks that wait for one worker: because it
// has begun them, or because the worker of their shard has left. They are at most as many as the workers may hold or
// have begun.
//
// Only tasks that a live worker takes are in memory. Tasks of other kinds and shards cost nothing, and take no memory
// of their kind. When a worker takes further shards, or a kind that no worker took before, the kind's places are
// the beginning again.
//
// # Order
//
// Tasks of the highest priority are offered first. Within a priority the partitions take turns, and the tasks of a
// partition begin in the order of the events that made them available: enqueued, released or interrupted. While
// tasks of several priorities wait, each 16th offer to workers of the same shards is the oldest of the tasks that are
// next in a priority, so none starves. A task that its worker has begun and lost is offered to that worker before all
// others.
//
// A task whose transaction commits late is sorted in when it becomes known. This is no promise: a worker may begin a
// later task first. If several workers have room, they get equal shares of the ready tasks, up to the room of each.
// Kinds do not wait for each other.
//
// # Limits
//
// Limits of starts are read with the leases. While as many tasks run, or are on their way to a worker, as a limit
// allows, its other tasks stay ready, or are parked if the limit is per partition or order key. They wait in the
// dispatcher: they cost no slot, no statement and no event, and delay no other task. Workers ask for such tasks only
// while slots are free. The permits and tokens in use are read when a limit is set or changed, and every 10 s in case
// the dispatcher is wrong; events keep them up to date meanwhile. A timer offers the next tasks of a rate when it
// allows them, by the database's clock, which is read with the permits. Every 2 s the dispatcher removes the old rows
// of permits and tokens. Without limits it does none of this.
//
// # The lease and epochs
//
// The active dispatcher holds the lease dispatcher for 1.5 s. The goroutine that reads the feed renews it every 300
// ms, so a dispatcher that no longer reads loses it. It sends nothing after the end of its lease, counted from before
// the statement that renewed it. Others read the lease every 100 ms, and take it when it has expired, or when the
// connection of its holder has ended. Behind a pooler they cannot detect the end of a connection, and wait for the
// lease to expire.
//
// A physical copy of a database contains the same tasks. So the first dispatcher after a start of PostgreSQL asks on
// NATS for 0.4 s whether a dispatcher or a relay of another copy works. After an answer it refuses, records the reason
// in the lease, and tries again. The lease of a dispatcher that begins names this start of the server, so its
// successors do not ask.
//
// It skips the question if a relay has asked since this start. It waits while a relay is asking or has refused. After a
// refusal it begins when nothing has answered for a minute: the original may be restarting. It does not begin after a
// start of the server while NATS is unavailable.
//
// Each holder has an epoch, one more than the last, and a new pair of keys, the public one in the lease. The
// dispatcher that begins does this in order:
//
//  1. It reads the leases of workers, and asks each session every 50 ms for the tasks that it holds.
//  2. It waits until all sessions have answered. If one does not, it waits until no worker accepts an offer of its
//     predecessor any more: until the predecessor's lease has ended, and another 2 s, for which a worker trusts an
//     offer, have passed.
//  3. It applies a window that was opened after that, and is active: only then it reads the list and offers tasks.
//
// Step 3 makes it find each outcome that a worker recorded before it answered. If a worker has not answered, all tasks
// that became available before are marked. When that worker answers later, it keeps the tasks that no other worker
// holds.
//
// # Hints and latency
//
// The notification of an enqueue names the position of its event. A hint is the task that the dispatcher then reads
// from the ledger, at once and ahead of the window that delivers it. Up to 100 hints share a statement.
//
// Any login can notify, and a notification can be late. So the statement returns only tasks that are still available
// by their first event and that no window has delivered. A hint is dropped if a window was applied after the read
// began. Feeds that follow the dispatcher get the events by a window 50 ms later.
//
// Notifications make commits wait for each other. Above about 1,000 events a second windows replace them, every 5 ms
// or every [Config].Latency, if that is longer. Windows also replace them where notifications cannot arrive: behind a
// pooler, and on a server with prepared transactions. There, 10 ms pass between windows that find nothing.
//
// # Pauses and sessions
//
// Leases of workers and paused kinds are read every 500 ms, and when a report of an unknown session arrives. Tasks
// of a paused kind stay ready. A worker gets nothing before its lease is in the database: its public key there
// seals the conversation.
//
// # Workers of the same process
//
// Messages between the dispatcher and a worker of its process pass through memory, unsealed (internal/local).
// Neither needs NATS for that. All rules of the conversation are the same.
//
// # Workers that claim in SQL
//
// A lease without a session belongs to a worker that claims its tasks (docs/languages.md). It gets no offers. Its
// tasks are running when the feed has delivered their starts, and are offered when its lease has ended or no longer
// contains their kind.
//
// A kind may have both sorts of workers, and the dispatcher offers its tasks as always. A pool begins most tasks
// without a record. So while others claim a kind, it records each start before the handler: of two starts one is
// refused. Once all attempts that it has begun are recorded, its lease lists the kind in its field records. Until the
// leases of all live pools list it, taskledger.claim and claim_next return nothing.
package dispatcher
