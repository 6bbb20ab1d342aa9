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
// ExactlyOnce ([Register]): the handler writes in a transaction of the ledger's database, and
// the task's succeeded event is appended and committed in that very transaction. Both happen or
// neither does, whatever is delivered twice, killed, slow or cut off.
//
// AtLeastOnce ([RegisterAtLeastOnce]): the handler's effects are elsewhere. Its success is
// recorded after it, together with those of others, so a process that ends in between leaves a
// task that is run again. The task's key is the idempotency key to give to that elsewhere.
//
// AtMostOnce ([RegisterAtMostOnce]): the same, but the start is recorded before the handler runs,
// and a task whose attempt vanished is buried and not run again.
//
// docs/guarantees.md compares them.
//
// # A message is only a wake-up call
//
// All workers of a kind share its two durable consumers: one for new tasks, one for those that
// come again (see stream.Consumers); or those of each set of shards share two, see below. What they
// do about a message is decided by the head of its task, the last event in the ledger, read on the
// primary. Messages that arrive together are decided by one query.
//
//	head of the task                              the worker
//	--------------------------------------------  ------------------------------------------------
//	no such event, or another one in its place    refuses the message: a ghost of an undone past
//	finished, scheduled, retrying                 acknowledges it; being released has a message of its own
//	available                                     runs the handler
//	available, message came before                records started, then runs the handler
//	running in this process                       adopts the message: it is answered with the first one
//	running elsewhere, that worker's lease lives  hands the message over to it, which may have let go of
//	                                              the task without an outcome; else it comes again later
//	running elsewhere, the lease is over          takes over: records started of the next attempt
//	                                              or buries the task if it has lost too many workers
//	running, and AtMostOnce                       buries the task: unknown outcome
//
// # An attempt
//
//	arrival ──▶ undecided ──▶ ready ──▶ handler ──┬─▶ succeeded        ─▶ ack
//	  │  in hand: kept alive by heartbeats,       ├─▶ failed           ─▶ ack (its release wakes again)
//	  │  once per task; what else arrives         ├─▶ failed + buried  ─▶ ack
//	  │  for the task waits or joins              ├─▶ snoozed          ─▶ ack (its release wakes again)
//	  │                                           ├─▶ discarded        ─▶ ack
//	  └── started is recorded once the handler    ├─▶ interrupted      ─▶ ack (wakes again)
//	      has run for StartedAfter                ├─▶ fenced           ─▶ the head is read again
//	                                              └─▶ retried          ─▶ nak: the database was away
//
// Every event is appended by compare-and-set on the version that the attempt knows, so of any
// number of workers that believe to own a task one gets its event in. The others are fenced: an
// ExactlyOnce transaction rolls back.
//
// The start of a first attempt is recorded only if it takes a while; most tasks have two events.
// From then on everybody can tell that it runs and where, and a worker that dies is noticed. The
// append goes beside the handler's transaction and is joined before the outcome is appended.
//
// # Inside a handler
//
//   - What it enqueues with its context names, as causation, the event that made its task
//     available, and goes on with its producer's trace ([ledger.WithCause]).
//   - [Job.Progress] tells people how far it is: at once in plain NATS, and in an event a second at
//     the most, beside its transaction.
//   - [Job.Checkpoint] commits how far a handler with outside effects is, and [Job.Resume] tells a
//     later attempt. [Job.PreviousErrors] tells what the earlier ones failed of.
//   - [Job.Result] leaves a value in the succeeded event, and [Job.Logger] names task and attempt.
//
// # Failures
//
//   - The handler returns an error, panics, calls runtime.Goexit, exceeds Timeout, leaves rows
//     open, swallows an error of its transaction or breaks a deferred constraint: the attempt has
//     failed. The retry policy of the task, or else of its kind, says when it is released again;
//     the database's clock decides, and failed says the moment. After as many failures as the
//     policy allows, counted since somebody last released the task from dead, it is buried as
//     well, and says why each attempt failed.
//   - The handler says more, by an error of this package, wrapped or not: [RetryIn] and [RetryAt]
//     overrule the delay, [Permanent] buries, [SnoozeFor] and [SnoozeUntil] put the task off and
//     use no attempt, [Discard] ends it.
//   - The handler ends its transaction by COMMIT or ROLLBACK in SQL: what it wrote may be
//     committed, so doing it again could double it: buried.
//   - The args do not decode ([InvalidArgs]): buried. Release it after a deploy that can read them.
//   - A serialization failure, a deadlock, a lost connection, a server that restarts: nobody's
//     fault. No attempt is used, however often; the message comes again after a while.
//   - The handler does not return when its context is done: after a grace of 5 s (or AckWait if
//     that is shorter) the attempt ends without it. The socket of its transaction is closed, so
//     the server rolls back. Its slot stays taken until it returns ([KindStatus].Overdue).
//   - The task is cancelled (workers/operator), or anything else is appended to it: the attempt is
//     fenced, and what it wrote is rolled back. Its context is cancelled ([ErrCancelled],
//     [ErrFenced]): at once if a message says so, else when the lease is renewed, every third of
//     AckWait. Who finished first has won, and the other is told.
//
// # What happens if the process ends
//
//   - before the handler or in it: the transaction is rolled back by the server. The message
//     comes again after AckWait. If the start was on record, the worker's lease has to end first;
//     the loss is counted, and a task that has lost MaxLost workers in a row is buried, since it
//     seems to kill them. (A loss within StartedAfter of a first attempt is not on record.)
//     Whatever else ran in the process counts as lost as well; so that bystanders are not buried
//     with the culprit, tasks with two chances left run one at a time.
//   - between handler and commit (crash point worker.handler): the same.
//   - between commit and acknowledgement (worker.committed): the message comes again, the head
//     says finished, it is acknowledged.
//
// If the connection is lost during the commit, the outcome is unknown to the worker; it has the
// message delivered again, and the head knows.
//
// If a message is gone although its task has not moved on (acknowledged by another client, expired by the stream's
// MaxAge, removed), a reconciler releases the task (workers/reconciler).
//
// # Concurrency properties
//
// Tasks are independent: nothing is promised about the order of different tasks. One task never
// runs twice at once in one process, except beside a handler that did not return. It may run in
// two processes at once if one of them is cut off; then one of the two is fenced. A process asks for as many messages of a kind
// as it has slots, and for more only if they are used up quickly, so what is slow here goes
// elsewhere. Answers to messages are not waited for: losing one costs a delivery, never an effect.
//
// The database and NATS may go away and come back at any time. A stream or consumer that is gone
// is waited for or made again.
//
// # Hooks
//
// [Config].Hooks and [KindConfig].Hooks are called around attempts: before one, with a say
// ([BeforeAttemptHook]); after it, with its outcome as it was recorded ([AfterAttemptHook]); for each
// event that the pool appended ([StateHook]); and for what is odd about messages ([NoticeHook]). One
// value may be several of these.
//
// Hooks before an attempt run in its time and in its transaction: what they return or do wrong is what
// the handler would have. The others have no say. They hear of what is committed, at most once: what
// must happen is enqueued by the handler in its transaction. One that panics or exits is logged, and
// one that does not return within 5 s (or AckWait, if that is shorter) is left behind; until then its
// message is not answered, and its pool not stopped.
//
// Hooks around enqueueing go with the kind ([ledger.NewKind]). [KindConfig].Middleware runs inside the
// hooks, around the handler.
//
// # Capacity
//
// A kind's handlers run in [KindConfig].Slots, and those of all kinds together in [Config].Slots, if
// that is set. While there are too few of the latter, kinds take turns, one handler each. Both can be
// changed while they run ([Pool.SetKindSlots], [Pool.SetSlots]).
//
// What a process has in hand of a kind are as many tasks as it has slots, and beyond that what they
// will use while more is on its way: about 100 ms' worth, at most 1000 tasks, and none if the messages
// in hand have 8 MiB or more. So slow handlers hold nothing that another worker could begin. If they
// become slow, what waited for 5 s goes back. [KindConfig].WhenFull is about what else to do then.
// (Tasks that come again have a consumer of their own, and may be as many again; so may each shard
// group have one more than its part.)
//
// A pool may have very many kinds. One that has nothing to do costs its two consumers, a waiting
// request at each, and three goroutines. So that 10,000 of them keep still, the server says the more
// rarely that a request is still there the more consumers a pool has, 200 times a second in all; a
// consumer that vanished without a word is missed after three times that (15 s, with 10,000 kinds
// 5 min).
//
// # Shards
//
// A worker takes tasks of the kinds that are registered with it, in all shards unless
// [Config].Shards says in which. With [Config].ShardGroups workers divide the shards among
// themselves: each group of shards of a kind has two consumers and one worker at a time, whose claim
// is a row that counts while the worker's lease lives. Every 2 s each worker looks who is there, for
// each of its kinds; gives up groups that are over its part; and takes what nobody has. A worker
// that is gone is missed after 6 s. What it had in hand comes again after AckWait, as ever.
//
// Who gives up a group stops receiving, gives back what has not begun, and lets its handlers return
// for up to 5 s before the next one may take it. So tasks of a shard rarely run in two processes at
// once, but they may, and one task never does more than without shards: heads decide.
//
// Sets of shards that overlap without being the same are refused ([*OverlapError]). To change them,
// stop the kind's workers and [Retire] the old consumers.
//
// # Overload
//
// Limits on how many tasks of a kind may wait hold where tasks are enqueued ([ledger.Limit]). If a limit's policy is
// to discard the oldest, a scheduler discards them (workers/scheduler). If it is to have callers run tasks, a
// [Caller] runs them in the transaction that enqueues them. docs/overload.md compares the policies.
//
// # Pausing
//
// No worker starts tasks of a kind that an operator has paused (workers/operator), until it is resumed. The pause
// is a row in the database, which workers read every second. Waiting tasks are given back, and running ones go on.
//
// # Tables
//
// This package appends events through package ledger, after which a message is acknowledged, never before. It writes
// taskledger.lease, one row for each process, and taskledger.shard_owner. ARCHITECTURE.md lists the writers and readers
// of all tables, and the places for a new overload policy.
//
// # Stopping
//
// When the context of [Pool.Run] is done, messages are no longer taken, and those whose handler
// has not begun are given back at once. Handlers have StopTimeout to finish; then their contexts
// are cancelled with the cause [ErrStopping], and what returns an error is given back with an
// interrupted event, which uses no attempt. Run returns when nothing is in hand any more.
//
// If PostgreSQL has fallen silent, outcomes wait for it for AckWait more: a slow database gets to take
// them. Then the worker gives them up, and the messages back; what had begun is taken over elsewhere,
// as after a crash. Config.StopTimeout says how long that takes at the most.
//
// [SignalContext] makes this of the first SIGINT or SIGTERM; the second one ends the process at once.
package workers
