// Package ledger enqueues tasks and reads what happened to them. Each task is a sequence of events in an append-only
// table of PostgreSQL, which is the queue, the outbox and the audit log at once.
//
//	type Coupon struct {
//		Cents int `json:"cents"`
//	}
//
//	var SendCoupon = ledger.MustKind[Coupon]("coupon.send")
//
//	// The order and the task commit together, or not at all.
//	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `insert into orders (id) values ($1)`, order); err != nil {
//			return err
//		}
//		_, err := SendCoupon.Enqueue(ctx, tx, ledger.BizID(order), Coupon{Cents: 500}, nil)
//		return err
//	})
//
// A kind names the work, and a biz_id the business object. Together they are the task's key: enqueueing the same key
// again returns the existing task, even after it has finished. With other args that is an [*OtherArgsError]. For a
// second run, put what makes it another task into the biz_id, such as A-1/2026-11. Package workers runs the tasks.
//
// Options set when a task may run, and how often. See [EnqueueOptions] for all of them:
//
//	&ledger.EnqueueOptions{RunIn: time.Hour}                          // later
//	&ledger.EnqueueOptions{FinishBy: tomorrow}                        // with a deadline
//	&ledger.EnqueueOptions{After: []ledger.Key{pay.Key("order-17")}}  // once another task has succeeded
//	&ledger.EnqueueOptions{Retry: &ledger.RetryPolicy{Attempts: 3}}   // at most three times
//
// [EnqueueMany] enqueues many tasks in one round trip. [Begin] returns a transaction that sends its inserts, the
// enqueue and the commit together.
//
// [Load] returns a task's state, [History] its events, and [ResultOf] its result:
//
//	task, err := ledger.Load(ctx, db, SendCoupon.Key("order-17"))
//	task.State // available, running, succeeded, dead, …
//
// If [Retryable] reports true for an error, run the whole transaction again. Other errors name their cure, such as
// [*InvalidError], and [*OverloadError] if the kind's limit is reached.
//
// Related packages:
//
//   - workers runs handlers, and ledger/ledgertest gives each test a database
//   - ledger/periodic enqueues tasks by a schedule, and ledger/stdsql enqueues through database/sql
//   - ledger/feed reads all committed events in order, outbox publishes them, projector keeps tables of them
//
// # Specification
//
// This package and its SQL functions are the only writers of events. The sections below define what they write, and
// which promises hold.
//
// # Tasks and events
//
// A task is one unit of work. Its key (kind, biz_id) names it, even after it has finished: enqueueing a key again
// returns the existing task. A task is stored only as its events, rows of taskledger.event:
//
//	column        meaning
//	------------  ------------------------------------------------------------------------------------------
//	kind          what to do: words of [A-Za-z0-9_-] joined by dots, at most 128 bytes
//	biz_id        for which business object: 1 to 255 bytes of UTF-8 without control characters
//	version       1, 2, 3… within the task, without gaps. (kind, biz_id, version) is the primary key
//	position      number of the event in the ledger, increasing along a task, with gaps
//	xid           transaction id of the writer, drawn before the position
//	type          what happened: enqueued, started, succeeded, failed, …
//	attempt       the n-th try of the run, counted by the database: 0 before the first
//	shard         0 to 63, spreads tasks over workers; unless given, the first 32 bits of md5(biz_id) modulo 64
//	recorded_at   clock of the database when the row was inserted
//	actor         author of the event as it named itself, the session's user if it did not
//	login_id      the session's user, recorded by the database: an id of the view taskledger.logins
//	data          JSON: the args in version 1 and where run is set; else the result, error, reason, … of the event
//	data_version  version of the format of data: the producer's for args, else 1 for now
//	run           number of the run, in an event that begins a later run of the task or replaces its args; else null
//	meta          JSON object next to data: trace context, causation, tags, encoding, …
//	priority      1 urgent to 4 low, of the task from this event on; 0: none was given, see [Priority]
//	partition     tenant or other group of the task, 1 to 64 bytes without control characters; null: none
//	order_key     the line in which the task stands, or null: see [EnqueueOptions]
//
// [EventType] lists the types, [Meta] the members of meta. Data that is bytes and not JSON is stored as base64. Rows
// are inserted and never changed. The state of a task is a function of the type of its last event, and the fold of all
// its events is a [Task] ([Fold], [Load]). [Transitions] lists which type may follow which state. A
// producer may enqueue a finished task again, which begins its next run, and replace the args of a task that has not
// begun ([IfExists]). Versions continue over runs; attempts, failures, error, result and deadlines belong to a run.
//
// # An event in each form
//
// The example of this package enqueues one task and prints its first event as:
//
//	row      (coupon.send, A-1, 1): enqueued, attempt 0, shard 2, data {"cents":500}
//	JSON     {"position":1,"kind":"coupon.send","biz_id":"A-1","version":1,"attempt":0,"shard":2,…}
//	id       coupon.send/A-1/1@1700000000000000: kind, biz_id, version, recorded_at in microseconds
//	message  subject ledger.2.enqueued.coupon.send, CloudEvents headers, body {"cents":500}; see docs/events.md
//
// The version alone would not identify an event: a fail-over that loses commits can assign one twice.
//
// # Enqueueing
//
// [Enqueue] inserts version 1 in the caller's transaction: the task exists if and only if that commits. Unless the task
// is due later or has a deadline, nothing else is written. Only the key is locked. It takes one round trip, two if the
// task exists. An enqueue that meets an uncommitted enqueue of the same key waits for its end. For an existing task
// nothing is written and no dead row is left. If its args differ, Enqueue returns an [*OtherArgsError], unless the
// caller accepts them.
//
// The SQL functions taskledger.enqueue and taskledger.enqueue_many do the same. Instead of that error they return
// same_args, because an error would abort the caller's transaction.
//
// A transaction of [Begin] saves round trips. An insert, an enqueue and the commit take four in a transaction of pgx,
// two if [Tx.EnqueueAndCommit] sends the commit with the enqueue, and one if [Tx.AtCommit] sends the insert too.
//
// # Appending
//
// [Append] inserts version n+1 if the task's last event is version n and the transition is allowed. It is a
// compare-and-set on the primary key: of any number of writers that expect version n, one succeeds. The others get a
// [*ConflictError], and their transaction stays usable: a caller that wrote anything for the task must roll back.
// [Tx.AppendAndCommit] rolls back itself, so a worker that has lost its claim leaves no effect.
//
// # Order
//
// The events of one task are ordered by version; version n+1 can only be inserted by a transaction that
// sees version n. Events of different tasks have no order. A position is not a cursor: transactions commit
// out of position order. Package ledger/feed reads every committed event once, each task in its order.
//
// # Lines
//
// The tasks with an order key form a line, and begin one after another. Such a task takes its place in line by an event
// lined_up, and is available after an event released with the reason turn, which the dispatcher appends by
// taskledger_internal.advance_lines. Nothing else may follow lined_up that makes the task available or begins an
// attempt, so no worker can start a task before its turn. The turn ends when the task has succeeded, or is cancelled,
// expired, discarded, enqueued again or scheduled by an operator. A dead task keeps it, unless it was enqueued with
// PassIfDead. A released event after a dead, cancelled, expired, discarded or scheduled task lines it up.
//
// # The past
//
// A [Moment] is a place in the order of commits, given by a time ([MomentAt]) or an event ([MomentOf]). [LoadAsOf]
// returns a task as it was then, [CountAsOf] and [ListAsOf] return all tasks of a kind, and [Events] reads the events
// between two moments, in the same order each time. An event counts from the commit of its transaction on, not from
// its recorded_at.
//
// # Times
//
// A task that is due later, a retry and a deadline are rows of taskledger.timer, inserted by the statement that
// appends the event. The database's clock decides, never a client's. Times are precise to the microsecond.
//
// # Tables
//
// Only this package and the SQL functions that it owns insert events. Every other package appends through these, so no
// writer skips the compare-and-set. ARCHITECTURE.md lists the owner of each table.
//
// # Errors
//
// An [*InvalidError] means that the input is at fault; it is returned before anything is sent, except for args
// and meta over the limits of the database. [*ConflictError], [*TransitionError] and [ErrUnknownTask] mean that
// the task is not as the caller expected; [IsConflict] reports them. An [*OverloadError] means that the kind's
// [Limit] is reached, an [*OtherArgsError] that the task exists with other args. After all of these nothing was written
// and the transaction stays usable.
//
// After an error for which [Retryable] reports true, such as [ErrRetryTransaction], run the whole transaction
// again. The messages of [ErrUnavailable] and [ErrNotMigrated] name the cure.
//
// # Concurrency
//
// Functions are as safe for concurrent use as their [DB]: a pool is, a connection or a transaction is not. Functions
// never commit or roll back a transaction of the caller. Only methods of [Tx] do; they also end it.
package ledger
