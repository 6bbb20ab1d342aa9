// Package workers runs a handler for each task of a kind, and finishes the task, by default in the handler's own
// transaction.
//
//	var SendCoupon = ledger.MustKind[Coupon]("coupon.send") // the producer's kind
//
//	// The coupon and the task's success commit together, or not at all.
//	func sendCoupon(ctx context.Context, tx pgx.Tx, job *workers.Job, c Coupon) error {
//		_, err := tx.Exec(ctx, `insert into coupons (order_id, cents) values ($1, $2)`, job.BizID, c.Cents)
//		return err
//	}
//
//	client, err := taskledger.Open(ctx, taskledger.Options{}) // reads DATABASE_URL
//	worker, err := client.Worker(workers.Handle(SendCoupon, sendCoupon, nil))
//	err = worker.Run(ctx) // until ctx is done
//
// Run "taskledger serve" next to it: its dispatcher gives each task to one worker that has room. Start as many
// workers as you like. [New] returns a worker on connections of your own.
//
// Choose the guarantee by where the handler's effects are:
//
//   - [ExactlyOnce]: rows of the ledger's database. The handler takes a transaction, tx.
//   - [AtLeastOnce]: elsewhere, such as a mail or an HTTP call. The handler takes no transaction. It may run again
//     after a crash; the task's key is the idempotency key.
//   - [AtMostOnce]: elsewhere, and a repetition is worse than a loss. [KindConfig].Guarantee asks for it. A task whose
//     attempt vanished waits for a person.
//
// A handler that returns nil has succeeded. An error or a panic is retried by the [KindConfig].Retry policy, and after
// the last attempt the task is dead. A handler may decide otherwise:
//
//	return workers.RetryIn(time.Minute, err)     // at another time
//	return workers.SnoozeFor(time.Hour)          // later, without using an attempt
//	return workers.Permanent(err)                // dead at once
//	return workers.Discard("the order is gone")  // finished, nothing to do
//
// [Job] contains the task's key and attempt, a logger, and methods that store a result, a checkpoint or progress. Tasks
// that the handler enqueues with its context are recorded as caused by this one.
//
// [KindConfig] sets, per kind, how many handlers run at a time (Slots: 8), how long one may take (Timeout: 15 min) and
// the retry policy. When ctx is done, Run finishes the running handlers and gives the other tasks back.
//
// Test handlers with package workertest, on real servers. Release, Bury, Cancel and Reschedule of package ledger change
// a task from a program; "taskledger release", "bury", "cancel" and "reschedule" do so from a shell.
//
// # Specification
//
// The sections below define when a handler runs, what each outcome records, and what happens when a process, NATS or
// PostgreSQL fails.
//
// # Delivery guarantees
//
// ExactlyOnce: the handler writes in a transaction of the ledger's database, and the task's succeeded
// event is appended and committed in that very transaction. Both happen or neither does, despite a second start,
// crashes, slow handlers and lost connections.
//
// AtLeastOnce: the handler's effects are elsewhere. Its success is recorded afterwards, in a
// group with others, so the task runs again if the process ends in between. The task's key is the idempotency key for
// the other system.
//
// AtMostOnce: the effects are elsewhere too, but the start is recorded before the handler runs. A
// task whose attempt vanished is buried and not run again.
//
// docs/guarantees.md compares them.
//
// # Offers, reports and leases
//
// Three things connect a worker with the dispatcher (internal/dispatcher). Any of them may be lost: correctness depends
// on the compare-and-set of each append alone.
//
//   - The lease is a row in the database: which kinds and shards the worker takes, its capacity, and the public key of
//     its process. It lasts for LeaseTTL (30 s), and the worker renews it three times as often. While it lives, no
//     other worker gets a task whose start is recorded. Other workers get the rest of its tasks after 5 s without a
//     report.
//   - A report is a message of the worker: how many tasks of each kind it has room for, and which ones it holds. It
//     sends one when that changes, and every 500 ms. Each report is complete, so the next one replaces a lost one.
//   - An offer is a message of the dispatcher with tasks of one kind. It carries args of up to 512 bytes, as just read
//     from the ledger.
//
// Messages use core NATS and are sealed by keys that only the two sides have. Between a dispatcher and a worker of one
// process they pass through memory.
//
// # From the offer to the handler
//
// A task begins without a look at the ledger if, when it gets its slot,
//
//   - its offer has args: the task is in its first version, its args are small, and the dispatcher's last window was
//     opened at most a second before the offer;
//   - the dispatcher's view is at most 2 s old;
//   - the worker has reached the primary in the last 2 s, and holds its lease;
//   - the task is not marked as one that may have begun elsewhere, and its guarantee is not AtMostOnce. The starts of
//     these are recorded first.
//
// Otherwise the worker first reads the task's head, its last event in the ledger, on the primary. It reads the heads of
// tasks that arrive together in one query. A task that has waited too long for its slot is read then, and waits again.
//
//	head of the task                              the worker
//	--------------------------------------------  ------------------------------------------------
//	no such event, or another in its place        refuses the offer: the event was lost in a restore
//	finished, scheduled, retrying                 drops the task
//	available                                     runs the handler
//	available, but it may have begun elsewhere    records started, then runs the handler
//	running in this process                       continues to record its outcome
//	running elsewhere, that worker's lease lives  reads the head again later
//	running elsewhere, the lease has expired      takes over: records started of the next attempt, or
//	                                              buries the task if it has lost too many workers
//	running, and AtMostOnce                       buries the task: unknown outcome
//
// # An attempt
//
//	offer ──▶ (head) ──▶ slot ──▶ handler ──┬─▶ succeeded         the task is dropped
//	  │ in flight, once per task.           ├─▶ failed            dropped: the timer's release is offered
//	  │ Reports list it.                    ├─▶ failed + buried   dropped
//	  │                                     ├─▶ snoozed           dropped, as after failed
//	  │                                     ├─▶ discarded         dropped
//	  └── started is recorded once the      ├─▶ interrupted       dropped: any worker may begin it
//	      handler has run for a second      ├─▶ fenced            the head is read again
//	                                        └─▶ retried           the head is read again after a while
//
// Every event is appended by compare-and-set on the version that the attempt knows. So of any number of workers that
// run the same task, one appends its event, and the others are fenced: their ExactlyOnce transactions roll back.
//
// The start of a first attempt is recorded once the handler has run for a second, or for a third of LeaseTTL if that is
// shorter, so most tasks have two events. From then on the ledger shows where the task runs, and the loss of that
// worker is detected. The start is appended outside the handler's transaction; the outcome is appended after that
// append has ended.
//
// A task that the worker dropped or gave back is missing from its next report. The dispatcher offers it again only if
// the ledger, read after that report, still shows it as available.
//
// # Inside a handler
//
//   - A task that it enqueues with its context records, as causation, the event that made its own task available, and
//     continues its producer's trace ([ledger.WithCause]).
//   - [Job.Progress] reports how far it is: at once in plain NATS, and in at most one event a second, outside its
//     transaction.
//   - [Job.Checkpoint] commits how far a handler with outside effects is, and [Job.Resume] reads that in a later
//     attempt. [Job.PreviousErrors] returns the errors of earlier attempts.
//   - [Job.Result] stores a value in the succeeded event, and [Job.Logger] logs with task and attempt.
//
// # Failures
//
//   - The handler returns an error, panics, calls runtime.Goexit, exceeds Timeout, leaves rows open, swallows an
//     error of its transaction or violates a deferred constraint: the attempt has failed. The retry policy of the
//     task, or of its kind, decides when the task is released again; the failed event stores the time, by the
//     database's clock. After as many failures as the policy allows, the task is also buried, with the error of each
//     attempt. A release from dead resets the count.
//   - The handler returns an error of this package, wrapped or not: [RetryIn] and [RetryAt] overrule the delay,
//     [Permanent] buries, [SnoozeFor] and [SnoozeUntil] postpone the task and use no attempt, [Discard] ends it.
//   - The handler ends its transaction by COMMIT or ROLLBACK in SQL: the task is buried, because the writes may be
//     committed, and a retry could repeat them.
//   - The args do not decode ([InvalidArgs]): the attempt has failed, with every guarantee. During a deploy a worker of
//     another version may decode them at the next attempt.
//   - A serialization failure, a deadlock, a lost connection or a server restart uses no attempt. The worker tries
//     again after 50 ms; the delay doubles up to half of LeaseTTL. After ten in a row in one worker, each further one
//     is a failure by the policy.
//   - An error of another database is a failure if the handler's transaction is intact, even if its SQLSTATE asks
//     for a retry. A handler without a transaction is repeated ten times before its error counts.
//   - The handler does not return when its context is done: after a grace of 5 s (or LeaseTTL if that is shorter) the
//     attempt ends without it. The socket of its transaction is closed, so the server rolls back. Its slot stays busy
//     until it returns ([KindStatus].Overdue).
//   - The task is cancelled ([ledger.Cancel]), or another process appends to it: the attempt is fenced, and its
//     writes are rolled back. Its context is cancelled ([ErrCancelled], [ErrFenced]) when the dispatcher has read the
//     event and has sent a recall. If that is lost, the next renewal of the lease finds it, every third of LeaseTTL. If
//     the handler finishes first, the operator gets an error instead.
//
// # What happens if the process ends
//
//   - before the handler or in it (crash points worker.ready, worker.claimed): the server rolls the transaction back.
//     The dispatcher offers its tasks to others, which record the start first: 5 s after its last report, or, if the
//     start was recorded, when its lease has expired. A loss counts only if the start was recorded. A task that has
//     lost MaxLost workers (5) in a row is buried, since it seems to kill them. All other tasks that ran in the process
//     count as lost as well. To keep them from being buried with the culprit, tasks with two losses left before burial
//     run one at a time.
//   - between handler and commit (worker.handler): the same.
//   - after the commit (worker.committed): nothing is left to do. The dispatcher reads the outcome in the ledger.
//
// If the connection is lost during the commit, the worker does not know the outcome. It reads the head, which decides.
//
// If the dispatcher ends, another process replaces it in the next epoch. It asks all workers with a live lease what
// they hold. The tasks of a worker that does not answer begin elsewhere: an AtLeastOnce handler may then run twice
// (docs/guarantees.md).
//
// While NATS is unavailable, workers finish and record the tasks that they hold, and get no others. Later messages
// replace lost offers and reports; no task is lost.
//
// # Concurrency properties
//
// Tasks are independent: no order of different tasks is promised. One task never runs twice at the same time in one
// process, except while a handler that did not return still runs. It may run in two processes at the same time if one
// of them is cut off; then one of the two is fenced.
//
// The database and NATS may become unavailable and come back at any time.
//
// # Hooks
//
// [Config].Hooks and [KindConfig].Hooks are called around attempts, see [Hook]: before one, which may end it; after
// it, with its recorded outcome; for each event that the pool appended; and for something unusual about an offered
// task ([Notice]).
//
// BeforeAttempt runs in the attempt's time and transaction: its errors and panics count as the handler's. The other
// methods cannot change the outcome. They receive only committed events and outcomes, at most once: a handler must
// enqueue required follow-up work in its transaction. A hook that panics or exits is logged. A hook that does not
// return within 5 s (or LeaseTTL, if that is shorter) is abandoned; until then its task stays in flight, and its pool
// does not stop.
//
// Hooks around enqueueing belong to the kind ([ledger.NewKind]). [KindConfig].Middleware runs inside the hooks,
// around the handler.
//
// # Capacity
//
// A kind's handlers run in [KindConfig].Slots, and the handlers of all kinds in [Config].Slots, if that is set. While
// the latter are too few, kinds take turns, one handler each. Both can be changed at run time ([Pool.SetKindSlots],
// [Pool.SetSlots]).
//
// A process keeps one task of a kind in flight per slot, and about 100 ms of work ahead of the slots: at most 1000
// tasks, and none while the payloads in flight exceed 8 MiB. So a slow handler does not hold back tasks that another
// worker could begin. If handlers become slow, tasks that have waited for 5 s are given back ([NoticeGivenBack]), and
// the kind takes no further tasks until it finds a slot free. The dispatcher sends only tasks that the worker has asked
// for.
//
// A pool may have very many kinds. An idle kind costs its name in the lease row and some memory: no connection, no
// subscription and no goroutine.
//
// # Shards
//
// A worker takes tasks of its registered kinds, in all shards unless [Config].Shards is set. The dispatcher offers it
// no others. Workers of a kind may have different or overlapping sets of shards. Tasks of a shard that no worker takes
// wait.
//
// # Overload
//
// Limits on how many tasks of a kind may wait apply where tasks are enqueued ([ledger.Limit]). If a limit's policy is
// to discard the oldest, a scheduler discards them. If it is to have callers run tasks, a [Caller] runs them in the
// transaction that enqueues them. docs/overload.md compares the policies.
//
// # Pausing
//
// No worker starts tasks of a kind that an operator has paused, until it is resumed. The pause is a row in the
// database, which the dispatcher reads every 500 ms and each worker every 900 ms. Tasks that have not begun are given
// back, and running ones go on.
//
// # Tables
//
// This package appends events through package ledger. It writes taskledger.lease, one row for each process.
// ARCHITECTURE.md lists the writers and readers of all tables.
//
// # Stopping
//
// When the context of [Pool.Run] is done, the pool asks for no more tasks and gives back those whose handler has not
// begun; the dispatcher offers them to other workers. Handlers have StopTimeout (10 s) to finish; then their contexts
// are cancelled with the cause [ErrStopping]. A handler that returns an error then gives its task back with an
// interrupted event, which uses no attempt. Run returns when nothing is in flight any more.
//
// If PostgreSQL does not answer, outcomes wait for it for another LeaseTTL. Then the worker drops them; other workers
// take over its tasks, as after a crash. Config.StopTimeout states how long that takes at most.
//
// [SignalContext] returns a context that the first SIGINT or SIGTERM cancels; the second one ends the process at once.
package workers
