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
	//go:embed sql/enqueue_timed.sql
	enqueueTimedSQL string
)

// EnqueueOptions says more about a task. Nil means all defaults.
type EnqueueOptions struct {
	// Shard of the task. Nil: the hash of its biz_id.
	Shard *Shard
	// Actor who enqueues. Empty: the database's session_user.
	Actor string
	// Meta beside the args: trace context, causation, tags. Zero: none.
	Meta Meta
	// Binary says that args are bytes and not JSON; handlers and subscribers get them back
	// byte for byte. Default: JSON.
	Binary bool
	// Retry is the task's own policy. Default: that of its kind, which the worker configures.
	Retry *RetryPolicy
	// RunAt or RunIn, at most one of them, is when the task is due: at a moment, or some time
	// after the database inserts it, by its clock. Until then it is scheduled. Zero, or what is
	// past: now.
	RunAt time.Time
	RunIn time.Duration
	// StartBy is a deadline for the first attempt: unstarted by then, the task expires. Zero: none.
	StartBy time.Time
	// FinishBy is a deadline for the whole task: no attempt begins after it, the context of a
	// running one ends at it, and a task that waits by then, for its first attempt or another,
	// expires. Zero: none.
	FinishBy time.Time
	// CanRun says that the caller is able to run the task itself, in the same transaction. If the limit
	// of the kind is reached and its policy is [CallerRuns], the task is enqueued all the same, and
	// [Enqueued].MustRun is set. Only for [Enqueue]. Default: an [*OverloadError] is returned then.
	// Package workers has a Caller that does all of this.
	CanRun bool
}

// Entry is one task to enqueue.
type Entry struct {
	Key     Key
	Args    json.RawMessage // nil: none
	Options *EnqueueOptions // nil: all defaults

	hooks []EnqueueHook // of its kind, if [TypedKind.Entry] made the entry
}

// Enqueued is the answer to an enqueue.
type Enqueued struct {
	Key      Key      `json:"-"`
	New      bool     `json:"new"`       // false: the task existed, and nothing was written
	State    State    `json:"state"`     // of the task now
	Version  Version  `json:"version"`   // of its last event
	SameArgs bool     `json:"same_args"` // whether the task has exactly these args, byte for byte
	Position Position `json:"position"`  // of its first event
	// MustRun: the task is beyond its kind's limit. The caller runs it in this transaction or rolls back.
	// Only with [EnqueueOptions].CanRun.
	MustRun bool `json:"must_run,omitempty"`
}

// Enqueue makes a task exist from the moment db's transaction commits, and never if it rolls
// back. A key names one task for ever: enqueueing it again writes nothing and returns the task
// as it is. An enqueue that meets an uncommitted one of the same key waits for it to end.
//
// It takes one statement for a new task and two for an existing one. It never commits.
//
// Errors: [*InvalidError] before anything is sent, and [*InvalidError]
// again if args or meta are over the limits of the database (setting max_args_bytes, 256 KiB,
// and max_meta_bytes, 16 KiB): the transaction stays usable. [ErrRetryTransaction] if db's
// transaction is REPEATABLE READ or SERIALIZABLE and the task was enqueued by a transaction
// it cannot see; [ErrNotMigrated]. [*OverloadError] if the kind has a [Limit] that is reached and says
// Reject or CallerRuns; if it says Discard, the answer is a new task that is discarded.
func Enqueue(ctx context.Context, db DB, k Key, args json.RawMessage, o *EnqueueOptions) (Enqueued, error) {
	return enqueue(ctx, db, Entry{Key: k, Args: args, Options: o})
}

// enqueue enqueues an entry, between its hooks.
func enqueue(ctx context.Context, db DB, e Entry) (Enqueued, error) {
	var answer Enqueued
	row, err := e.row(ctx)
	if err != nil {
		err = fmt.Errorf("enqueue %s: %w", e.Key, err)
	} else {
		answer, err = enqueueOne(ctx, db, row)
	}
	err = countRejection(ctx, db, err)
	e.enqueued(ctx, answer, err)
	return answer, err
}

func enqueueOne(ctx context.Context, db DB, row firstEvent) (Enqueued, error) {
	answer, err := enqueueWithinLimit(ctx, db, row)
	var overload *OverloadError
	if !row.canRun || !errors.As(err, &overload) || overload.Policy != CallerRuns {
		return answer, err
	}
	answer, err = enqueueRow(ctx, db, row, true)
	answer.MustRun = err == nil && answer.New
	return answer, err
}

func enqueueWithinLimit(ctx context.Context, db DB, row firstEvent) (Enqueued, error) {
	if row.timed() {
		return enqueueRow(ctx, db, row, false)
	}
	k := row.key
	var position Position
	found, err := pgquery.Row(ctx, db, enqueueSQL, row.enqueueArgs(), &position)
	if err != nil {
		return Enqueued{}, pgerr.Explain("enqueue "+k.String(), err)
	}
	if found {
		return newlyEnqueued(k, position, EventEnqueued), nil
	}
	answers, err := existing(ctx, db, []firstEvent{row})
	if err != nil {
		return Enqueued{}, err
	}
	return answers[0], nil
}

// EnqueueMany enqueues all entries with one statement, two if some of them exist already, and
// answers in their order. A key given twice is new once. The whole call fails if one entry is
// invalid, and then nothing is written. In everything else it is like [Enqueue].
func EnqueueMany(ctx context.Context, db DB, entries []Entry) ([]Enqueued, error) {
	return enqueueAll(ctx, db, entries, true)
}

// EnqueueInOrder is [EnqueueMany] for tasks whose order matters: the feed, and so the stream,
// has them in the order of entries. The price: two concurrent transactions that name the same
// keys in different orders may deadlock, and the database ends one of them ([Retryable]).
func EnqueueInOrder(ctx context.Context, db DB, entries []Entry) ([]Enqueued, error) {
	return enqueueAll(ctx, db, entries, false)
}

// enqueueAll enqueues entries, between their hooks.
func enqueueAll(ctx context.Context, db DB, entries []Entry, sorted bool) ([]Enqueued, error) {
	answers, err := enqueueMany(ctx, db, entries, sorted)
	err = countRejection(ctx, db, err)
	for i, e := range entries {
		var answer Enqueued
		if err == nil {
			answer = answers[i]
		}
		e.enqueued(ctx, answer, err)
	}
	return answers, err
}

// errCanRun is returned where several tasks are enqueued, or where the transaction ends with it.
var errCanRun = &InvalidError{Field: "can_run", Rule: "must not be set here: use Enqueue"}

func enqueueMany(ctx context.Context, db DB, entries []Entry, sorted bool) ([]Enqueued, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	rows := make([]firstEvent, len(entries))
	order := make([]int, len(entries))
	for i, entry := range entries {
		row, err := entry.row(ctx)
		if err != nil {
			return nil, fmt.Errorf("enqueue entry %d (%s): %w", i, entry.Key, err)
		}
		if row.canRun {
			return nil, fmt.Errorf("enqueue entry %d (%s): %w", i, entry.Key, errCanRun)
		}
		rows[i], order[i] = row, i
	}
	if sorted {
		slices.SortStableFunc(order, func(a, b int) int { return rows[a].key.Compare(rows[b].key) })
	}
	return enqueueRows(ctx, db, rows, order, false)
}

func enqueueRow(ctx context.Context, db DB, row firstEvent, beyond bool) (Enqueued, error) {
	answers, err := enqueueRows(ctx, db, []firstEvent{row}, []int{0}, beyond)
	if err != nil {
		return Enqueued{}, err
	}
	return answers[0], nil
}

// enqueueRows inserts rows, order being that of their keys, and answers in the order of rows; beyond
// the limits of what waits, if told to.
func enqueueRows(ctx context.Context, db DB, rows []firstEvent, order []int, beyond bool) ([]Enqueued, error) {
	added, err := insertMany(ctx, db, rows, order, beyond)
	if err != nil {
		return nil, pgerr.Explain("enqueue", err)
	}
	answers := make([]Enqueued, len(rows))
	var missing []int
	for _, i := range order {
		if answer, ok := added[rows[i].key]; ok {
			answers[i] = answer
			delete(added, rows[i].key) // a second entry with this key finds it existing
		} else {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return answers, nil
	}
	missingRows := make([]firstEvent, len(missing))
	for j, i := range missing {
		missingRows[j] = rows[i]
	}
	found, err := existing(ctx, db, missingRows)
	if err != nil {
		return nil, err
	}
	for j, i := range missing {
		answers[i] = found[j]
	}
	return answers, nil
}

// enqueueArgs are the arguments of enqueue.sql.
func (row firstEvent) enqueueArgs() []any {
	return []any{string(row.key.Kind), string(row.key.BizID), int64(row.shard), pgquery.Optional(row.actor), pgquery.JSON(row.args), pgquery.JSON(row.meta)}
}

func newlyEnqueued(k Key, position Position, first EventType) Enqueued {
	return Enqueued{Key: k, New: true, State: first.State(), Version: 1, SameArgs: true, Position: position}
}

// insertMany returns the answers for the keys that were inserted.
func insertMany(ctx context.Context, db DB, rows []firstEvent, order []int, beyond bool) (map[Key]Enqueued, error) {
	statement := enqueueManySQL
	var kinds, ids, shards, actors, args, metas, runAfters, runAts, startBys, finishBys pgarray.Builder
	for _, i := range order {
		row := rows[i]
		kinds.Add(string(row.key.Kind))
		ids.Add(string(row.key.BizID))
		shards.Add(strconv.Itoa(int(row.shard)))
		actors.AddOptional(row.actor)
		args.AddOptional(string(row.args))
		metas.AddOptional(string(row.meta))
		after, at := row.run.texts()
		runAfters.AddOptional(after)
		runAts.AddOptional(at)
		startBys.AddOptional(momentText(row.startBy))
		finishBys.AddOptional(momentText(row.finishBy))
		if row.timed() {
			statement = enqueueTimedSQL
		}
	}
	limits := int64(0)
	if beyond {
		limits = 1
	}
	values := []any{kinds.String(), ids.String(), shards.String(), actors.String(), args.String(), metas.String(), limits}
	if statement == enqueueTimedSQL {
		values = append(values, runAfters.String(), runAts.String(), startBys.String(), finishBys.String())
	}
	result, err := db.Query(ctx, statement, values...)
	if err != nil {
		return nil, err
	}
	defer result.Close()
	added := make(map[Key]Enqueued, len(order))
	for result.Next() {
		var kind, id, first string
		var position int64
		if err := result.Scan(&kind, &id, &position, &first); err != nil {
			return nil, err
		}
		k := Key{Kind(kind), BizID(id)}
		added[k] = newlyEnqueued(k, Position(position), EventType(first))
	}
	return added, result.Err()
}
