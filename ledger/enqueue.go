package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

var (
	//go:embed sql/enqueue.sql
	enqueueSQL string
	//go:embed sql/enqueue_many.sql
	enqueueManySQL string
	//go:embed sql/existing.sql
	existingSQL string
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
	// Retry is the task's own policy. Nil: that of its kind, which the worker has.
	Retry *RetryPolicy
	// RunAt is reserved for delayed tasks. Not supported yet: anything but zero is
	// [ErrUnsupported].
	RunAt time.Time
}

// Entry is one task to enqueue.
type Entry struct {
	Key     Key
	Args    json.RawMessage // nil: none
	Options *EnqueueOptions // nil: all defaults
}

// Enqueued is the answer to an enqueue.
type Enqueued struct {
	Key      Key      `json:"-"`
	New      bool     `json:"new"`       // false: the task existed, and nothing was written
	State    State    `json:"state"`     // of the task now
	Version  Version  `json:"version"`   // of its last event
	SameArgs bool     `json:"same_args"` // whether the task has exactly these args, byte for byte
	Position Position `json:"position"`  // of its first event
}

// Enqueue makes a task exist from the moment db's transaction commits, and never if it rolls
// back. A key names one task for ever: enqueueing it again writes nothing and returns the task
// as it is. An enqueue that meets an uncommitted one of the same key waits for it to end.
//
// It takes one statement for a new task and two for an existing one. It never commits.
//
// Errors: [*InvalidError] and [ErrUnsupported] before anything is sent, and [*InvalidError]
// again if args or meta are over the limits of the database (setting max_args_bytes, 256 KiB,
// and max_meta_bytes, 16 KiB): the transaction stays usable. [ErrRetryTransaction] if db's
// transaction is REPEATABLE READ or SERIALIZABLE and the task was enqueued by a transaction
// it cannot see; [ErrNotMigrated].
func Enqueue(ctx context.Context, db DB, k Key, args json.RawMessage, o *EnqueueOptions) (Enqueued, error) {
	row, err := newRow(Entry{Key: k, Args: args, Options: o})
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", k, err)
	}
	var position Position
	found, err := queryRow(ctx, db, enqueueSQL,
		[]any{string(k.Kind), string(k.BizID), int64(row.shard), optional(row.actor), nullable(row.args), nullable(row.meta)}, &position)
	if err != nil {
		return Enqueued{}, explain("enqueue "+k.String(), err)
	}
	if found {
		return newlyEnqueued(k, position), nil
	}
	answers, err := existing(ctx, db, []row1{row})
	if err != nil {
		return Enqueued{}, err
	}
	return answers[0], nil
}

// EnqueueMany enqueues all entries with one statement, two if some of them exist already, and
// answers in their order. A key given twice is new once. The whole call fails if one entry is
// invalid, and then nothing is written. In everything else it is like [Enqueue].
func EnqueueMany(ctx context.Context, db DB, entries []Entry) ([]Enqueued, error) {
	return enqueueMany(ctx, db, entries, true)
}

// EnqueueInOrder is [EnqueueMany] for tasks whose order matters: the feed, and so the stream,
// has them in the order of entries. The price: two concurrent transactions that name the same
// keys in different orders may deadlock, and the database ends one of them ([Retryable]).
func EnqueueInOrder(ctx context.Context, db DB, entries []Entry) ([]Enqueued, error) {
	return enqueueMany(ctx, db, entries, false)
}

func enqueueMany(ctx context.Context, db DB, entries []Entry, sorted bool) ([]Enqueued, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	rows := make([]row1, len(entries))
	order := make([]int, len(entries))
	for i, entry := range entries {
		row, err := newRow(entry)
		if err != nil {
			return nil, fmt.Errorf("enqueue entry %d (%s): %w", i, entry.Key, err)
		}
		rows[i], order[i] = row, i
	}
	if sorted {
		slices.SortStableFunc(order, func(a, b int) int { return rows[a].key.Compare(rows[b].key) })
	}
	added, err := insertMany(ctx, db, rows, order)
	if err != nil {
		return nil, explain("enqueue many", err)
	}

	answers := make([]Enqueued, len(entries))
	var missing []int
	for _, i := range order {
		if position, ok := added[rows[i].key]; ok {
			answers[i] = newlyEnqueued(rows[i].key, position)
			delete(added, rows[i].key) // a second entry with this key finds it existing
		} else {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return answers, nil
	}
	missingRows := make([]row1, len(missing))
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

// row1 is the first event of a task, checked and encoded.
type row1 struct {
	key   Key
	shard Shard
	actor string
	args  json.RawMessage
	meta  json.RawMessage
}

func newRow(e Entry) (row1, error) {
	o := e.Options
	if o == nil {
		o = &EnqueueOptions{}
	}
	row := row1{key: e.Key, shard: e.Key.BizID.Shard(), actor: o.Actor, args: e.Args}
	if err := e.Key.Validate(); err != nil {
		return row, err
	}
	if !o.RunAt.IsZero() {
		return row, fmt.Errorf("option RunAt: %w", ErrUnsupported)
	}
	if o.Shard != nil {
		if err := o.Shard.Validate(); err != nil {
			return row, err
		}
		row.shard = *o.Shard
	}
	if err := checkActor(o.Actor); err != nil {
		return row, err
	}
	meta := o.Meta
	if o.Retry != nil {
		if err := o.Retry.Validate(); err != nil {
			return row, err
		}
		meta.Retry = o.Retry.String()
	}
	if meta.Retry != "" {
		if _, err := ParseRetryPolicy(meta.Retry); err != nil {
			return row, err
		}
	}
	if o.Binary {
		row.args, meta.Encoding = encodeBinary(e.Args), EncodingBase64
	} else if err := checkJSON("args", e.Args); err != nil {
		return row, err
	}
	if meta.isZero() {
		return row, nil
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return row, &InvalidError{Field: "meta", Rule: "must be JSON: " + err.Error()}
	}
	row.meta = text
	if err := checkJSON("meta", row.meta); err != nil {
		return row, err
	}
	if _, err := DecodePayload(row.args, row.meta); err != nil { // nobody could read it
		return row, &InvalidError{Field: "meta", Rule: "must say how args are encoded: " + err.Error()}
	}
	return row, nil
}

func newlyEnqueued(k Key, position Position) Enqueued {
	return Enqueued{Key: k, New: true, State: StateAvailable, Version: 1, SameArgs: true, Position: position}
}

// insertMany returns the positions of the keys that were inserted.
func insertMany(ctx context.Context, db DB, rows []row1, order []int) (map[Key]Position, error) {
	var kinds, ids, shards, actors, args, metas textArray
	for _, i := range order {
		row := rows[i]
		kinds.add(string(row.key.Kind))
		ids.add(string(row.key.BizID))
		shards.add(strconv.Itoa(int(row.shard)))
		actors.addOptional(row.actor)
		args.addOptional(string(row.args))
		metas.addOptional(string(row.meta))
	}
	result, err := db.Query(ctx, enqueueManySQL,
		kinds.String(), ids.String(), shards.String(), actors.String(), args.String(), metas.String())
	if err != nil {
		return nil, err
	}
	defer result.Close()
	added := make(map[Key]Position, len(order))
	for result.Next() {
		var kind, id string
		var position int64
		if err := result.Scan(&kind, &id, &position); err != nil {
			return nil, err
		}
		added[Key{Kind(kind), BizID(id)}] = Position(position)
	}
	return added, result.Err()
}

// existing answers for keys whose insert did nothing. It is a statement of its own because the
// winner of a race is visible only to a snapshot taken after it committed.
func existing(ctx context.Context, db DB, rows []row1) ([]Enqueued, error) {
	var kinds, ids, args textArray
	for _, row := range rows {
		kinds.add(string(row.key.Kind))
		ids.add(string(row.key.BizID))
		args.addOptional(string(row.args))
	}
	result, err := db.Query(ctx, existingSQL, kinds.String(), ids.String(), args.String())
	if err != nil {
		return nil, explain("enqueue: read existing task", err)
	}
	defer result.Close()
	answers := make([]Enqueued, len(rows))
	var unseen error
	for i := 0; result.Next(); i++ {
		var position, version *int64
		var eventType *string
		var same bool
		var argsLen, maxArgs, maxMeta int64
		if err := result.Scan(&position, &version, &eventType, &same, &argsLen, &maxArgs, &maxMeta); err != nil {
			return nil, explain("enqueue: read existing task", err)
		}
		row := rows[i]
		if err := row.overLimit(argsLen, maxArgs, maxMeta); err != nil && version == nil {
			return nil, fmt.Errorf("enqueue %s: %w", row.key, err)
		}
		if version == nil { // unless another entry was over the limit, so that none was inserted
			unseen = fmt.Errorf("enqueue %s: %w", row.key, ErrRetryTransaction)
			continue
		}
		answers[i] = Enqueued{
			Key: row.key, State: EventType(*eventType).State(), Version: Version(*version),
			SameArgs: same, Position: Position(*position),
		}
	}
	if err := result.Err(); err != nil {
		return nil, explain("enqueue: read existing task", err)
	}
	return answers, unseen
}

// overLimit explains an insert that did nothing although the key is free.
func (r row1) overLimit(argsLen, maxArgs, maxMeta int64) error {
	switch {
	case argsLen > maxArgs:
		return &InvalidError{Field: "args", Rule: fmt.Sprintf("must have at most %d bytes, has %d; enqueue a reference to a larger payload", maxArgs, argsLen)}
	case int64(len(r.meta)) > maxMeta:
		return &InvalidError{Field: "meta", Rule: fmt.Sprintf("must have at most %d bytes, has %d", maxMeta, len(r.meta))}
	}
	return nil
}
