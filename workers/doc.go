// Package workers runs handlers for the tasks of a ledger, woken by messages from JetStream.
//
//	p, err := workers.New(workers.Config{DB: pool, NATS: nc})
//	err = workers.Register(p, coupons, func(ctx context.Context, tx pgx.Tx, job *workers.Job, c Coupon) error {
//		_, err := tx.Exec(ctx, "insert into coupon (order_no, percent) values ($1, $2)", string(job.BizID), c.Percent)
//		return err
//	}, nil)
//	err = p.Run(ctx) // until ctx is done
//
// # Delivery guarantees
//
// ExactlyOnce ([Register]): the handler writes in a transaction of the ledger's database, and the task's succeeded
// event is appended and committed in that very transaction. Both happen or neither does, despite redeliveries,
// crashes, slow handlers and lost connections.
//
// AtLeastOnce ([RegisterAtLeastOnce]): the handler's effects are elsewhere. Its success is recorded after it,
// together with those of others, so the task runs again if the process ends in between. The task's key is the
// idempotency key for the other system.
//
// AtMostOnce ([RegisterAtMostOnce]): the same, but the start is recorded before the handler runs, and a task whose
// attempt vanished is buried and not run again.
//
// docs/guarantees.md compares them.
//
// # A message is only a wake-up call
//
// All workers of a kind share its two durable consumers: one for new tasks, one for tasks that were released again.
// Workers with a part of the shards have their own two, see below. The head of a task, the last event in the ledger,
// read on the primary, decides about its message. Messages that arrive together are decided by one query.
//
//	head of the task                              the worker
//	--------------------------------------------  ------------------------------------------------
//	no such event, or another one in its place    refuses the message: a ghost of a lost past
//	finished, scheduled, retrying                 acknowledges it; a release has a message of its own
//	available                                     runs the handler
//	available, message was delivered before       records started, then runs the handler
//	running in this process                       adopts the message: it is answered with the first one
//	running elsewhere, that worker's lease lives  hands the message over to it, which may have released
//	                                              the task without an outcome; otherwise it is redelivered
//	running elsewhere, the lease has expired      takes over: records started of the next attempt, or
//	                                              buries the task if it has lost too many workers
//	running, and AtMostOnce                       buries the task: unknown outcome
//
// # An attempt
//
//	arrival ──▶ undecided ──▶ ready ──▶ handler ──┬─▶ succeeded        ─▶ ack
//	  │  in flight: kept alive by heartbeats,     ├─▶ failed           ─▶ ack (its release has a message)
//	  │  once per task; other messages of the     ├─▶ failed + buried  ─▶ ack
//	  │  task wait or join                        ├─▶ snoozed          ─▶ ack (its release has a message)
//	  │                                           ├─▶ discarded        ─▶ ack
//	  └── started is recorded once the handler    ├─▶ interrupted      ─▶ ack (it has a message itself)
//	      has run for StartedAfter                ├─▶ fenced           ─▶ the head is read again
//	                                              └─▶ retried          ─▶ nak: the database was unavailable
//
// Every event is appended by compare-and-set on the version that the attempt knows. So of any number of workers that
// run the same task, one appends its event, and the others are fenced: their ExactlyOnce transactions roll back.
//
// The start of a first attempt is recorded only if it takes a while; most tasks have two events. Once it is recorded,
// the ledger shows where the task runs, and the loss of that worker is noticed. The start is appended beside the
// handler's transaction, and that append is joined before the outcome is appended.
//
// # Inside a handler
//
//   - A task that it enqueues with its context records, as causation, the event that made its own task available, and
//     continues its producer's trace ([ledger.WithCause]).
//   - [Job.Progress] reports how far it is: at once in plain NATS, and in at most one event a second, beside its
//     transaction.
//   - [Job.Checkpoint] commits how far a handler with outside effects is, and [Job.Resume] reads that in a later
//     attempt. [Job.PreviousErrors] returns the errors of earlier attempts.
//   - [Job.Result] stores a value in the succeeded event, and [Job.Logger] logs with task and attempt.
//
// # Failures
//
//   - The handler returns an error, panics, calls runtime.Goexit, exceeds Timeout, leaves rows open, swallows an
//     error of its transaction or violates a deferred constraint: the attempt has failed. The retry policy of the
//     task, or that of its kind, decides when the task is released again; the failed event stores the time, by the
//     database's clock. After as many failures as the policy allows, the task is also buried, with the error of each
//     attempt. A release from dead resets the count.
//   - The handler returns an error of this package, wrapped or not: [RetryIn] and [RetryAt] overrule the delay,
//     [Permanent] buries, [SnoozeFor] and [SnoozeUntil] postpone the task and use no attempt, [Discard] ends it.
//   - The handler ends its transaction by COMMIT or ROLLBACK in SQL: the task is buried, because the writes may be
//     committed, and a retry could repeat them.
//   - The args do not decode ([InvalidArgs]): the attempt has failed, with every guarantee. During a deploy a worker of
//     another version may decode them at the next attempt.
//   - A serialization failure, a deadlock, a lost connection or a server restart uses no attempt; the message is
//     redelivered after a while. After ten in a row in one worker, each further one is a failure by the policy.
//   - An error of another database is a failure, also with a SQLSTATE that asks for a retry, if the handler's
//     transaction is intact. A handler without a transaction is repeated ten times before its error counts.
//   - The handler does not return when its context is done: after a grace of 5 s (or AckWait if that is shorter) the
//     attempt ends without it. The socket of its transaction is closed, so the server rolls back. Its slot stays busy
//     until it returns ([KindStatus].Overdue).
//   - The task is cancelled (workers/operator), or another process appends to it: the attempt is fenced, and its
//     writes are rolled back. Its context is cancelled ([ErrCancelled], [ErrFenced]) at once by a message or, if that
//     is lost, at the next renewal of the lease, every third of AckWait. If the handler finishes first, the operator
//     gets an error instead.
//
// # What happens if the process ends
//
//   - before the handler or in it: the server rolls the transaction back. The message is redelivered after AckWait.
//     If the start was recorded, the worker's lease has to expire first. The loss is counted, and a task that has
//     lost MaxLost workers in a row is buried, since it seems to kill them. (A loss within StartedAfter of a first
//     attempt is not recorded.) All other tasks that ran in the process count as lost as well. To keep them from
//     being buried with the culprit, tasks with two chances left run one at a time.
//   - between handler and commit (crash point worker.handler): the same.
//   - between commit and acknowledgement (worker.committed): the message is redelivered and acknowledged, because the
//     head is the outcome.
//
// If the connection is lost during the commit, the worker does not know the outcome. It has the message redelivered,
// and the head decides.
//
// If a message is gone although its task has not moved on (acknowledged by another client, expired by the stream's
// MaxAge, removed), a reconciler releases the task (workers/reconciler).
//
// # Concurrency properties
//
// Tasks are independent: no order of different tasks is promised. One task never runs twice at the same time in one
// process, except beside a handler that did not return. It may run in two processes at the same time if one of them
// is cut off; then one of the two is fenced. A process asks for as many messages of a kind as it has slots, and for
// more only if they are used up quickly, so tasks of slow handlers go to other workers. A worker does not wait for
// its answers to messages to arrive: a lost answer costs a delivery, never an effect.
//
// The database and NATS may become unavailable and come back at any time. A worker waits for a missing stream and
// recreates a missing consumer.
//
// # Hooks
//
// [Config].Hooks and [KindConfig].Hooks are called around attempts, see [Hook]: before one, which may end it; after
// it, with its recorded outcome; for each event that the pool appended; and for unusual deliveries of messages.
//
// BeforeAttempt runs in the attempt's time and transaction: its errors and panics count as the handler's. The other
// methods cannot change the outcome. They receive what is committed, at most once: a handler must enqueue required
// follow-up work in its transaction. A hook that panics or exits is logged, and one that does not return within 5 s
// (or AckWait, if that is shorter) is abandoned; until then its message is not answered, and its pool does not stop.
//
// Hooks around enqueueing belong to the kind ([ledger.NewKind]). [KindConfig].Middleware runs inside the hooks,
// around the handler.
//
// # Capacity
//
// A kind's handlers run in [KindConfig].Slots, and those of all kinds together in [Config].Slots, if that is set.
// While there are too few of the latter, kinds take turns, one handler each. Both can be changed at run time
// ([Pool.SetKindSlots], [Pool.SetSlots]).
//
// A process has as many tasks of a kind in flight as the kind has slots, and beyond that those that it will use while
// more are on their way: about 100 ms' worth, at most 1000 tasks, and none if the payloads in flight have 8 MiB or
// more. So a slow handler does not hold back tasks that another worker could begin. If handlers become slow, tasks
// that have waited for 5 s are given back. [KindConfig].WhenFull selects another policy. (Released tasks have a
// consumer of their own, and may be as many again; each shard group may have one task more than its part.)
//
// A pool may have very many kinds. An idle kind costs its two consumers, a waiting request at each, and three
// goroutines. An idle request is made again every 5 s. At most 200 are made a second for the whole pool: the more
// consumers a pool has, the rarer they are. A missing consumer is noticed after three times this interval (15 s, with
// 10,000 kinds 5 min). In a cluster of NATS a pool that stops waits until its requests have ended.
//
// # Shards
//
// A worker takes tasks of the kinds that are registered with it, in all shards unless [Config].Shards is set. With
// [Config].ShardGroups workers divide the shards among themselves. Each group of shards of a kind has two consumers
// and one worker at a time, whose claim is a row that is valid while the worker's lease lives. Every 2 s each worker
// reads the live workers of each of its kinds, gives up groups that exceed its part, and takes free ones. The loss of
// a worker is noticed after 6 s. Its tasks in flight are redelivered after AckWait, as always.
//
// A worker that gives up a group stops receiving, gives back tasks that have not begun, and waits up to 5 s for its
// handlers to return before another worker may take the group. So tasks of a shard rarely run in two processes at the
// same time. If they do, heads decide, as they do without shards.
//
// Sets of shards that overlap without being the same are refused ([*OverlapError]). To change them, stop the kind's
// workers and [Retire] the old consumers.
//
// # Overload
//
// Limits on how many tasks of a kind may wait apply where tasks are enqueued ([ledger.Limit]). If a limit's policy is
// to discard the oldest, a scheduler discards them (workers/scheduler). If it is to have callers run tasks, a
// [Caller] runs them in the transaction that enqueues them. docs/overload.md compares the policies.
//
// # Pausing
//
// No worker starts tasks of a kind that an operator has paused (workers/operator), until it is resumed. The pause is
// a row in the database, which workers read every second. Waiting tasks are given back, and running ones go on.
//
// # Tables
//
// This package appends events through package ledger, after which a message is acknowledged, never before. It writes
// taskledger.lease, one row for each process, and taskledger.shard_owner. ARCHITECTURE.md lists the writers and readers
// of all tables, and the places for a new overload policy.
//
// # Stopping
//
// When the context of [Pool.Run] is done, the pool takes no more messages and gives back those whose handler has not
// begun. Handlers have StopTimeout to finish; then their contexts are cancelled with the cause [ErrStopping]. A
// handler that returns an error then gives its task back with an interrupted event, which uses no attempt. Run
// returns when nothing is in flight any more.
//
// If PostgreSQL does not answer, outcomes wait for it for another AckWait. Then the worker drops them and gives the
// messages back; other workers take over running tasks, as after a crash. Config.StopTimeout states how long that
// takes at most.
//
// [SignalContext] returns a context that the first SIGINT or SIGTERM cancels; the second one ends the process at once.
package workers
