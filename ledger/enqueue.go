package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/enqueue.sql
	enqueueSQL string
	//go:embed sql/enqueue_many.sql
	enqueueManySQL string
	//go:embed sql/enqueue_all.sql
	enqueueAllSQL string
)

// EnqueueOptions are the optional properties of a new task. Nil means all defaults.
type EnqueueOptions struct {
	// Shard is the shard of the task. Default: a hash of its biz_id, see [BizID.Shard].
	Shard *Shard
	// Actor is the author of the first event. Default: the database's session_user.
	Actor string
	// Meta is stored with the args: trace context, causation, tags. Default: no meta.
	Meta Meta
	// Binary marks args that are bytes and not JSON. Handlers and subscribers get the same bytes.
	// Default: args are JSON.
	Binary bool
	// Retry is the task's own policy. Default: the policy of its kind, which the worker configures.
	Retry *RetryPolicy
	// RunAt is the time at which the task is due: microseconds, before the last microsecond of the year 9998. Until
	// then it is scheduled. A time in the past means now. Default: now.
	RunAt time.Time
	// RunIn is the delay after which the task is due, in place of RunAt. It counts from the insert by the
	// database's clock, in microseconds, rounded up. Default: due at once.
	RunIn time.Duration
	// StartBy is the deadline of the first attempt: if none has started by then, the task expires.
	// Default: no deadline.
	StartBy time.Time
	// FinishBy is the deadline of the whole task. A task that waits at that time expires, and no attempt
	// begins later. The context of a running attempt ends at that time. Default: no deadline.
	FinishBy time.Time
	// After lists tasks that must have succeeded before this task becomes available, at most [MaxAfter]. Until then it
	// is scheduled, without a due time. They must exist, in this transaction or a committed one, or be earlier entries
	// of the same call; so there are no cycles. Not together with RunAt and RunIn. Default: none.
	After []Key
	// Otherwise is the consequence if one of After has finished without success. Default: [OtherwiseCancel].
	Otherwise Otherwise
	// DataVersion is the version of the format of args, 1 to 32767. [Event].DataVersion returns it to programs that
	// read old tasks: see [Upcasts]. Default: 1.
	DataVersion int
	// Priority decides which of the waiting tasks of the kind begins first: 1 urgent, 2 high, 3 normal, 4 low. It is no
	// part of the task's identity: an existing task keeps its own, unless IfExists writes args. Default: the kind's
	// priority, see [TypedKind.WithPriority].
	Priority Priority
	// Partition is the tenant or other group to which the task belongs: the waiting tasks of a kind and priority begin
	// in turns of their partitions, so that a partition with many tasks does not delay the others. At most
	// [MaxPartitionLen] bytes of UTF-8 without control characters. Like Priority, it is no part of the task's identity.
	// Default: the partition of all tasks without one.
	Partition string
	// OrderKey names a line, for example customer/17: its tasks, of any kinds, begin one after another. The next begins
	// when the task before it has succeeded, or was cancelled, expired or discarded. While that task waits for a retry,
	// or is dead, the line stands. A comes before B if A committed before B's transaction began, or if both wait and
	// A's position is lower. A task with a due time or predecessors lines up when it is due. At most 255 bytes without
	// control characters. Not together with CanRun. Default: none, the task waits for no other.
	OrderKey string
	// PassIfDead lets the next task in line begin if this one is dead. Default: the line stands until it is released.
	PassIfDead bool
	// IfExists decides what happens if a task with this key exists: it is returned, runs again, or gets these args. The
	// last two cannot be combined with After and CanRun. Default: [IfExistsSame].
	IfExists IfExists
	// CheckArchive also searches the keys of archived tasks: an archived task is returned as an existing one, see
	// [Enqueued].Archived. It may miss a task that is archived at the same moment. IfExistsRerun, IfExistsReplace and
	// IfExistsFollow always find archived tasks. Default: the enqueue returns a new task, which a dispatcher discards
	// before it begins.
	CheckArchive bool
	// DeferAtMost bounds a debounce: with [IfExistsReplace] or [IfExistsFollow], a replacement makes the task due no
	// later than this long after its run was enqueued, so that constant changes cannot keep it from running.
	// Default: no bound.
	DeferAtMost time.Duration
	// ThrottleFor is the least time between two runs: with [IfExistsRerun], [IfExistsReplace] or [IfExistsFollow], a
	// run is due this long after the end of the run before, or later. So at most one run begins in such a period, and
	// all enqueues meanwhile are one run at its end. Default: 0.
	ThrottleFor time.Duration
	// CanRun declares that the caller can run the task itself, in the same transaction. If the kind's
	// limit is reached and its policy is [CallerRuns], the task is then enqueued, and [Enqueued].MustRun
	// is set. Only [Enqueue] accepts it. The type Caller of package workers does all of this.
	// Default: an [*OverloadError] is returned.
	CanRun bool
}

// Entry is one task to enqueue.
type Entry struct {
	Key     Key
	Args    json.RawMessage // default: no args
	Options *EnqueueOptions // nil: all defaults

	// Of the kind, set by [TypedKind.Entry].
	hooks    []EnqueueHook
	isSame   func(was, is json.RawMessage) bool
	priority Priority // if Options has none
}

// Enqueued is the result of an enqueue.
type Enqueued struct {
	Key
	New      bool     `json:"new"`       // whether this call wrote args: a new task or run, or a replacement
	State    State    `json:"state"`     // the current state of the task
	Version  Version  `json:"version"`   // of its last event
	SameArgs bool     `json:"same_args"` // whether the task has these args: see [Enqueue]
	Position Position `json:"position"`  // of the event with its args
	// Difference is the first difference of the args, such as "args.cents was 500, is 600". It is bounded and
	// printable. It is empty if another login enqueued the task.
	Difference string `json:"difference,omitempty"`
	// Archived reports that the task was archived. Its args are not compared: SameArgs is true, and Position is 0.
	Archived bool `json:"archived,omitempty"`
	// MustRun reports that the kind's limit is reached: the caller must run the task in this transaction or roll back.
	// It is set only with [EnqueueOptions].CanRun.
	MustRun bool `json:"must_run,omitempty"`
}

// String returns the key, whether the call wrote args, the state and the version, such as "coupon.send/A-1 new,
// available, version 1". Its form may change.
func (e Enqueued) String() string {
	what := "exists"
	switch {
	case e.New:
		what = "new"
	case e.Archived:
		what = "archived"
	case !e.SameArgs:
		what = "exists with other args"
	}
	return fmt.Sprintf("%s %s, %s, version %d", e.Key, what, e.State, e.Version)
}

// Enqueue inserts the first event of a task. The task exists if and only if db's transaction commits.
// If a task with this key and these args exists, Enqueue writes nothing and returns that task. If another
// transaction has enqueued the key and is open, Enqueue waits until it ends. It never commits.
//
// If the task exists with other args, Enqueue writes nothing and returns an [*OtherArgsError] with that task.
// [EnqueueOptions].IfExists accepts other args, runs a finished task again, or replaces the args of a task that has not
// begun. Racing callers and workers are serialized by the task's versions, as for each append.
//
// Args are the same if they are equal as JSON values: the order of members, spaces, and the notation of strings and
// numbers do not matter, so 1 equals 1.0 and 1e0. Numbers are exact. Exponents of more than 15 digits, and objects
// with a repeated name, are compared as written. A run keeps the args with which it was enqueued.
// [TypedKind.WithSameArgs] compares Go values.
//
// It takes one statement for a new task and two for an existing one, three with CheckArchive. With [IfExistsRerun],
// [IfExistsReplace] and [IfExistsFollow] it takes one if it writes to an existing task, three for a new one, and
// otherwise four.
//
// It returns an [*InvalidError] before anything is sent. It also returns one if args or meta exceed the
// limits of the database: setting max_args_bytes, 256 KiB, and max_meta_bytes, 16 KiB. It returns an
// [*OverloadError] if the [Limit] of the kind is reached and its policy is Reject or CallerRuns. With
// Discard, the result is a new task that is discarded. After these errors the transaction stays usable.
//
// It returns [ErrRetryTransaction] if db's transaction is REPEATABLE READ or SERIALIZABLE and cannot see
// the transaction that enqueued the task. [ErrNotMigrated] and [ErrUnavailable] name their cure.
func Enqueue(ctx context.Context, db DB, k Key, args json.RawMessage, o *EnqueueOptions) (Enqueued, error) {
	return enqueue(ctx, db, Entry{Key: k, Args: args, Options: o})
}

// enqueue enqueues an entry and calls its hooks.
func enqueue(ctx context.Context, db DB, e Entry) (Enqueued, error) {
	var answer Enqueued
	row, err := e.firstEvent(ctx)
	if err != nil {
		err = fmt.Errorf("enqueue %s: %w", e.Key, err)
	} else {
		answer, err = enqueueOne(ctx, db, row)
	}
	if err = countRejection(ctx, db, err); err == nil {
		err = row.checkArgs(answer)
	}
	e.callAfter(ctx, answer, err)
	return answer, err
}

// enqueueOne enqueues a row. If the kind's limit is reached and the caller runs the task, it ignores the limit.
func enqueueOne(ctx context.Context, db DB, row firstEvent) (Enqueued, error) {
	answer, err := enqueueWithinLimit(ctx, db, row)
	var overload *OverloadError
	if !row.canRun || row.isLater() || !errors.As(err, &overload) || overload.Policy != CallerRuns {
		return answer, err
	}
	answer, err = enqueueRow(ctx, db, row, true)
	answer.MustRun = err == nil && answer.New
	return answer, err
}

// enqueueWithinLimit enqueues a row, subject to the kind's limit.
func enqueueWithinLimit(ctx context.Context, db DB, row firstEvent) (Enqueued, error) {
	if row.needsAll() {
		return enqueueRow(ctx, db, row, false)
	}
	if row.again() {
		if answer, ok, err := enqueueAgainFirst(ctx, db, row); ok || err != nil {
			return answer, err
		}
	}
	k := row.key
	var position Position
	var woken any // the result of taskledger_internal.wake, which returns void
	ok, err := pgquery.Row(ctx, db, enqueueSQL, row.enqueueArgs(), &position, &woken)
	if err != nil {
		return Enqueued{}, pgerr.Explain("enqueue "+k.String(), err)
	}
	if ok {
		answers := []Enqueued{newEnqueued(k, position, EventEnqueued)}
		err := runArchived(ctx, db, []firstEvent{row}, []int{0}, answers)
		return answers[0], err
	}
	answers, err := resolve(ctx, db, []firstEvent{row})
	if err != nil {
		return Enqueued{}, err
	}
	return answers[0], nil
}

// EnqueueMany enqueues all entries as [Enqueue] does, in one statement, two if some of them exist, and one more if new
// ones have an [IfExists] that runs a finished task again. It returns the results in the order of the entries. If a key
// occurs twice, its first result is the new task. If one entry is invalid, or an [*OverloadError] is returned, nothing
// is written. It never commits.
//
// Entries of one key take effect in their order: each result is the task after its entry and before the next. Each
// change between an [IfExists] that may write and one that may not adds statements.
//
// If a task of an entry with [IfExistsRerun] or [IfExistsReplace] finishes during the call, and the limit of its kind
// is reached, the error aborts the transaction.
//
// If an entry has an order key, the batch is inserted in its own order, as by [EnqueueInOrder], so that its tasks
// stand in line in that order.
//
// If tasks exist with other args, it returns the results of all entries and an [*OtherArgsError]; the other entries are
// enqueued. They exist if the caller's transaction commits, or at once if db is a pool or a connection without one.
func EnqueueMany(ctx context.Context, db DB, entries []Entry) ([]Enqueued, error) {
	return enqueueAll(ctx, db, entries, true)
}

// EnqueueInOrder is [EnqueueMany] for tasks whose order matters: the feed, and so the stream, contains them in the
// order of the entries. Two concurrent transactions with the same keys in different orders may deadlock; the database
// then aborts one of them with an error that is [Retryable]. It never commits.
func EnqueueInOrder(ctx context.Context, db DB, entries []Entry) ([]Enqueued, error) {
	return enqueueAll(ctx, db, entries, false)
}

// enqueueAll enqueues entries and calls their hooks.
func enqueueAll(ctx context.Context, db DB, entries []Entry, sorted bool) ([]Enqueued, error) {
	rows, answers, err := enqueueMany(ctx, db, entries, sorted)
	err = countRejection(ctx, db, err)
	if err != nil {
		for _, e := range entries {
			e.callAfter(ctx, Enqueued{}, err)
		}
		return nil, err
	}
	var first *OtherArgsError
	for i, e := range entries {
		other := rows[i].checkArgs(answers[i])
		e.callAfter(ctx, answers[i], other)
		switch {
		case other == nil:
		case first == nil:
			first = &OtherArgsError{Existing: answers[i]}
		default:
			first.More++
		}
	}
	if first != nil {
		return answers, fmt.Errorf("enqueue: %w", first)
	}
	return answers, nil
}

// checkArgs returns an [*OtherArgsError], wrapped, if answer is a task with other args than r and r does not accept
// that.
func (r firstEvent) checkArgs(answer Enqueued) error {
	if answer.New || answer.SameArgs || r.ifExists == IfExistsIgnore {
		return nil
	}
	return fmt.Errorf("enqueue: %w", &OtherArgsError{Existing: answer})
}

// errCanRun is returned by the functions that enqueue many tasks or commit.
var errCanRun = &InvalidError{Field: "can_run", Rule: "must not be set here: use Enqueue"}

// enqueueMany enqueues entries, inserted in the order of their keys if sorted is set and no entry contains an order
// key.
func enqueueMany(
	ctx context.Context, db DB, entries []Entry, sorted bool,
) (rows []firstEvent, answers []Enqueued, err error) {
	if len(entries) == 0 {
		return nil, nil, nil
	}
	rows = make([]firstEvent, len(entries))
	order := make([]int, len(entries))
	for i, entry := range entries {
		row, err := entry.firstEvent(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("enqueue entry %d (%s): %w", i, entry.Key, err)
		}
		if row.canRun {
			return nil, nil, fmt.Errorf("enqueue entry %d (%s): %w", i, entry.Key, errCanRun)
		}
		rows[i], order[i] = row, i
		sorted = sorted && row.orderKey == ""
	}
	if sorted {
		slices.SortStableFunc(order, func(a, b int) int { return rows[a].key.Compare(rows[b].key) })
	}
	answers, err = enqueueRows(ctx, db, rows, order, false)
	return rows, answers, err
}

// enqueueRow is enqueueRows for one row.
func enqueueRow(ctx context.Context, db DB, row firstEvent, ignoreLimits bool) (Enqueued, error) {
	if row.again() {
		if answer, ok, err := enqueueAgainFirst(ctx, db, row); ok || err != nil {
			return answer, err
		}
	}
	answers, err := enqueueRows(ctx, db, []firstEvent{row}, []int{0}, ignoreLimits)
	if err != nil {
		return Enqueued{}, err
	}
	return answers[0], nil
}

// enqueueRows inserts rows in the given order of their indices. It returns the results in the order of rows.
// With ignoreLimits, the limits of their kinds do not apply.
func enqueueRows(ctx context.Context, db DB, rows []firstEvent, order []int, ignoreLimits bool) ([]Enqueued, error) {
	if err := checkPredecessors(ctx, db, rows); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	added, err := insertMany(ctx, db, rows, order, insertOptions{ignoreLimits: ignoreLimits})
	if err != nil {
		return nil, err
	}
	answers := make([]Enqueued, len(rows))
	var inserted, rest []int
	for _, i := range order {
		if answer, ok := added[rows[i].key]; ok {
			answers[i] = answer
			inserted = append(inserted, i)
			delete(added, rows[i].key) // for a second entry with this key the task exists
		} else {
			rest = append(rest, i)
		}
	}
	if err := runArchived(ctx, db, rows, inserted, answers); err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return answers, nil
	}
	restRows := make([]firstEvent, len(rest))
	for j, i := range rest {
		restRows[j] = rows[i]
	}
	restAnswers, err := resolve(ctx, db, restRows)
	if err != nil {
		return nil, err
	}
	for j, i := range rest {
		answers[i] = restAnswers[j]
	}
	return answers, nil
}

// enqueueArgs returns the parameters of enqueue.sql.
func (r firstEvent) enqueueArgs() []any {
	return []any{
		string(r.key.Kind), string(r.key.BizID), int64(r.shard), pgquery.Optional(r.actor), pgquery.JSON(r.args),
		pgquery.JSON(r.meta), int64(r.dataVersion), int64(r.priority), pgquery.Optional(r.partition),
	}
}

// newEnqueued returns the result for a task that was inserted, with its last event of type last.
func newEnqueued(k Key, position Position, last EventType) Enqueued {
	version := Version(1)
	if last == EventDiscarded {
		version = 2
	}
	return Enqueued{Key: k, New: true, State: last.State(), Version: version, SameArgs: true, Position: position}
}

// insertOptions are the options of insertMany.
type insertOptions struct {
	ignoreLimits bool // the limits of the tasks' kinds do not apply
	mayDiscard   bool // the limit of a kind may be reached and discard
}

// insertMany inserts rows in the given order and returns the results of the rows that were inserted.
func insertMany(
	ctx context.Context, db DB, rows []firstEvent, order []int, o insertOptions,
) (map[Key]Enqueued, error) {
	var kinds, ids, shards, actors, args, metas, versions, runAfters, runAts, startBys, finishBys, waits pgarray.Builder
	var priorities, partitions, orderKeys, checks pgarray.Builder
	needsAll := o.mayDiscard
	actors.Empties, partitions.Empties, orderKeys.Empties = true, true, true
	for _, i := range order {
		row := rows[i]
		kinds.Add(string(row.key.Kind))
		ids.Add(string(row.key.BizID))
		shards.Add(strconv.Itoa(int(row.shard)))
		actors.AddOptional(row.actor)
		args.AddOptional(string(row.args))
		metas.AddOptional(string(row.storedMeta()))
		versions.Add(strconv.Itoa(row.dataVersion))
		priorities.AddOptionalInt(int64(row.priority))
		partitions.AddOptional(row.partition)
		runAfter, runAt := row.run.params()
		runAfters.AddOptional(runAfter)
		runAts.AddOptional(runAt)
		startBys.AddOptional(timeParam(row.startBy))
		finishBys.AddOptional(timeParam(row.finishBy))
		waits.Add(strconv.FormatBool(len(row.after) > 0))
		orderKeys.AddOptional(row.orderKey)
		checks.Add(strconv.FormatBool(row.checkArchive))
		needsAll = needsAll || row.needsAll()
	}
	ignore := int64(0)
	if o.ignoreLimits {
		ignore = 1
	}
	statement, values := enqueueManySQL, []any{
		kinds.String(), ids.String(), shards.String(), actors.String(), args.String(), metas.String(), ignore,
		versions.String(), priorities.String(), partitions.String(),
	}
	if needsAll {
		statement, values = enqueueAllSQL, append(values, runAfters.String(), runAts.String(), startBys.String(),
			finishBys.String(), waits.String(), orderKeys.String(), checks.String())
	}
	result, err := db.Query(ctx, statement, values...)
	if err != nil {
		return nil, pgerr.Explain("enqueue", err)
	}
	defer result.Close()
	added := make(map[Key]Enqueued, len(order))
	for result.Next() {
		var kind, id, last string
		var position int64
		if err := result.Scan(&kind, &id, &position, &last); err != nil {
			return nil, pgerr.Explain("enqueue", err)
		}
		k := Key{Kind(kind), BizID(id)}
		added[k] = newEnqueued(k, Position(position), EventType(last))
	}
	return added, pgerr.Explain("enqueue", result.Err())
}
