package ledger

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/strictjson"
)

//go:embed sql/predecessors.sql
var predecessorsSQL string

// MaxAfter is the greatest number of predecessors of a task.
const MaxAfter = 100

// Otherwise is the consequence for a task when one of its predecessors has finished without success: is dead,
// cancelled, expired or discarded.
type Otherwise string

// The consequences for the task.
const (
	OtherwiseCancel Otherwise = "cancel" // it is cancelled at once
	OtherwiseRun    Otherwise = "run"    // it becomes available when all predecessors have finished
	OtherwiseWait   Otherwise = "wait"   // it waits until an operator has released the predecessor and it has succeeded
)

func (o Otherwise) isValid() bool {
	return o == OtherwiseCancel || o == OtherwiseRun || o == OtherwiseWait
}

// After lists the predecessors of a task: see [EnqueueOptions].
type After struct {
	Keys      []Key     `json:"keys"`
	Otherwise Otherwise `json:"otherwise"`
}

// memberAfter is the member of a first event's meta that contains an [After].
const memberAfter = "after"

// parseAfter returns the predecessors in the meta of a first event, none if they are invalid.
func parseAfter(meta json.RawMessage) After {
	if !bytes.Contains(meta, []byte(`"`+memberAfter+`"`)) { // most metas: saves decoding
		return After{}
	}
	var members map[string]json.RawMessage
	var a After
	if json.Unmarshal(meta, &members) != nil || strictjson.Unmarshal(members[memberAfter], &a) != nil ||
		len(a.Keys) > MaxAfter || !a.Otherwise.isValid() ||
		slices.ContainsFunc(a.Keys, func(k Key) bool { return k.ValidateStored() != nil }) {
		return After{}
	}
	return a
}

// Awaited returns the predecessors that a task waits for if e is its last event.
func (e Event) Awaited() After {
	if !e.HasArgs() || e.Type != EventScheduled {
		return After{}
	}
	return parseAfter(e.Meta)
}

// newAfter checks the predecessors of a new task. It drops repeated keys.
func newAfter(k Key, o *EnqueueOptions) (a After, err error) {
	invalid := func(value, rule string) (After, error) {
		return After{}, &InvalidError{Field: memberAfter, Value: value, Rule: rule}
	}
	switch {
	case o.Otherwise != "" && !o.Otherwise.isValid():
		rule := "must be cancel, run or wait"
		return After{}, &InvalidError{Field: "otherwise", Value: string(o.Otherwise), Rule: rule}
	case len(o.After) == 0:
		return After{}, nil
	case len(o.After) > MaxAfter:
		return invalid("", fmt.Sprintf("must have at most %d keys, got %d: let a task after each hundred come between",
			MaxAfter, len(o.After)))
	case !o.RunAt.IsZero() || o.RunIn != 0:
		return invalid("", "must not be set together with a due time")
	case o.CanRun:
		return invalid("", "must not be set together with CanRun")
	}
	a.Otherwise = o.Otherwise
	if a.Otherwise == "" {
		a.Otherwise = OtherwiseCancel
	}
	for _, predecessor := range o.After {
		if err := predecessor.ValidateStored(); err != nil {
			return After{}, fmt.Errorf("%s %s: %w", memberAfter, predecessor, err)
		}
		if predecessor == k {
			return invalid(k.String(), "must not contain the task itself")
		}
		if !slices.Contains(a.Keys, predecessor) {
			a.Keys = append(a.Keys, predecessor)
		}
	}
	return a, nil
}

// checkPredecessors returns an [*InvalidError] if the predecessor of a row is neither in the database nor before it
// in rows.
func checkPredecessors(ctx context.Context, db DB, rows []firstEvent) error {
	wanted := make(map[Key]bool)
	known := make(map[Key]bool)
	var kinds, ids pgarray.Builder
	var keys []Key
	for _, row := range rows {
		for _, k := range row.after {
			if !known[k] && !wanted[k] {
				wanted[k] = true
				keys = append(keys, k)
				kinds.Add(string(k.Kind))
				ids.Add(string(k.BizID))
			}
		}
		known[row.key] = true
	}
	if len(keys) == 0 {
		return nil
	}
	found, err := db.Query(ctx, predecessorsSQL, kinds.String(), ids.String())
	if err != nil {
		return pgerr.Explain("enqueue", err)
	}
	defer found.Close()
	for found.Next() {
		var i int64
		if err := found.Scan(&i); err != nil {
			return err
		}
		delete(wanted, keys[i-1])
	}
	if err := found.Err(); err != nil {
		return pgerr.Explain("enqueue", err)
	}
	for _, k := range keys {
		if wanted[k] {
			rule := "must be an existing task: enqueue it first, or as an earlier entry of EnqueueMany"
			return &InvalidError{Field: memberAfter, Value: k.String(), Rule: rule}
		}
	}
	return nil
}

// Predecessors returns the predecessors of a task, in the order of [EnqueueOptions].After, with their results and
// errors: see [ResultOf]. A predecessor that has not finished has Key, Shard, State, Version, Attempt, UpdatedAt
// and Actor. It returns nil for a task without predecessors.
//
// It returns [ErrUnknownTask] if the task does not exist, or db's login may not read a predecessor.
func Predecessors(ctx context.Context, db DB, k Key) ([]Task, error) {
	first, err := ArgsEvent(ctx, db, k)
	if err != nil {
		return nil, err
	}
	keys := parseAfter(first.Meta).Keys
	if len(keys) == 0 {
		return nil, nil
	}
	loaded, err := loadFinished(ctx, db, keys)
	if err != nil {
		return nil, fmt.Errorf("predecessors of %s: %w", k, err)
	}
	tasks := make([]Task, len(loaded))
	for i, l := range loaded {
		if l.err != nil {
			return nil, fmt.Errorf("predecessors of %s: %w", k, l.err)
		}
		tasks[i] = l.task
	}
	return tasks, nil
}
