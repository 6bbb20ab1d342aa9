package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/reserved"
)

// firstEvent is the first event of a task, checked and encoded: a row to insert.
type firstEvent struct {
	key   Key
	shard Shard
	actor string
	args  json.RawMessage
	meta  json.RawMessage

	dataVersion int // of args
	priority    Priority
	partition   string

	canRun   bool     // see [EnqueueOptions].CanRun
	ifExists IfExists // see [EnqueueOptions].IfExists

	checkArchive bool // see [EnqueueOptions]; false if the row finds archived tasks anyway

	deferAtMost, throttleFor time.Duration // see [EnqueueOptions]

	isSame func(was, is json.RawMessage) bool // see [TypedKind.WithSameArgs], or nil

	after []Key // its predecessors

	orderKey   string
	passIfDead bool

	run               dueTime
	startBy, finishBy time.Time
}

// needsAll reports whether the task needs enqueue_all.sql: for a due time, a deadline, predecessors, an order key or a
// search in the archive.
func (r firstEvent) needsAll() bool {
	return r.checkArchive || r.orderKey != "" || len(r.after) > 0 || !r.run.isZero() || !r.startBy.IsZero() ||
		!r.finishBy.IsZero()
}

// isLater reports whether the task is due later by this process's clock, or waits for predecessors or for its turn.
func (r firstEvent) isLater() bool {
	return len(r.after) > 0 || r.orderKey != "" || r.run.after > 0 || r.run.at.After(time.Now())
}

// firstEvent returns the first event of an entry, after adding the cause of ctx and calling BeforeEnqueue.
func (e Entry) firstEvent(ctx context.Context) (firstEvent, error) {
	e, err := e.addCause(ctx).callBefore(ctx)
	if err != nil {
		return firstEvent{}, err
	}
	row, err := newFirstEvent(e)
	if err == nil && !reserved.IsAllowed(ctx) {
		err = row.checkReserved()
	}
	return row, err
}

// checkReserved returns an [*InvalidError] if only taskledger itself may enqueue the task.
func (r firstEvent) checkReserved() error {
	if reserved.IsKind(r.key.Kind) {
		rule := "must not begin with " + reserved.KindPrefix + ", which is reserved"
		return &InvalidError{Field: "kind", Value: string(r.key.Kind), Rule: rule}
	}
	if reserved.IsActor(r.actor) {
		rule := "must not begin with " + reserved.FiringActorPrefix + ", which is reserved"
		return &InvalidError{Field: "actor", Value: r.actor, Rule: rule}
	}
	return nil
}

// newFirstEvent checks and encodes an entry.
func newFirstEvent(e Entry) (firstEvent, error) {
	o := e.Options
	if o == nil {
		o = &EnqueueOptions{}
	}
	row := firstEvent{key: e.Key, shard: e.Key.BizID.Shard(), actor: o.Actor, args: e.Args,
		dataVersion: max(o.DataVersion, 1), priority: o.Priority, partition: o.Partition, canRun: o.CanRun,
		ifExists: o.IfExists, deferAtMost: o.DeferAtMost, throttleFor: o.ThrottleFor, isSame: e.isSame}
	row.checkArchive = o.CheckArchive && !row.again()
	if err := e.Key.Validate(); err != nil {
		return row, err
	}
	if row.priority == 0 {
		row.priority = e.priority
	}
	if err := row.priority.Validate(); err != nil {
		return row, err
	}
	if err := CheckPartition(row.partition); err != nil {
		return row, err
	}
	if err := row.setTimes(o); err != nil {
		return row, err
	}
	if err := o.IfExists.check(o); err != nil {
		return row, err
	}
	if err := row.setLine(o); err != nil {
		return row, err
	}
	if o.Shard != nil {
		if err := o.Shard.Validate(); err != nil {
			return row, err
		}
		row.shard = *o.Shard
	}
	if o.DataVersion < 0 || o.DataVersion > math.MaxInt16 {
		rule := fmt.Sprintf("must be between 1 and %d", math.MaxInt16)
		return row, &InvalidError{Field: "data version", Value: strconv.Itoa(o.DataVersion), Rule: rule}
	}
	if err := checkActor(o.Actor); err != nil {
		return row, err
	}
	meta := o.Meta
	for _, tag := range meta.Tags {
		if err := checkStorable("tags", tag); err != nil {
			return row, err
		}
	}
	if meta.hasTimes() {
		rule := "must not contain times: use the options RunAt, StartBy and FinishBy"
		return row, &InvalidError{Field: "meta", Rule: rule}
	}
	for _, member := range []string{memberRunAt, memberStartBy, memberFinishBy, memberAfter, memberPassIfDead} {
		if _, ok := meta.Extra[member]; ok {
			rule := "must not contain " + member + ": use the option of this name"
			return row, &InvalidError{Field: "meta", Rule: rule}
		}
	}
	if err := row.setAfter(&meta, o); err != nil {
		return row, err
	}
	if err := meta.setRetry(o.Retry); err != nil {
		return row, err
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
	if err := checkMeta(row.meta); err != nil {
		return row, err
	}
	if _, err := decodePayload(row.args, row.meta); err != nil { // no handler could decode them
		return row, &InvalidError{Field: "meta", Rule: "must name the encoding of args: " + err.Error()}
	}
	return row, nil
}

// setAfter checks the predecessors, and adds them to meta.
func (r *firstEvent) setAfter(meta *Meta, o *EnqueueOptions) error {
	after, err := newAfter(r.key, o)
	if err != nil || len(after.Keys) == 0 {
		return err
	}
	text, err := json.Marshal(after)
	if err != nil {
		return &InvalidError{Field: memberAfter, Rule: "must be JSON: " + err.Error()}
	}
	extra := maps.Clone(meta.Extra)
	if extra == nil {
		extra = make(map[string]json.RawMessage)
	}
	extra[memberAfter] = text
	meta.Extra, r.after = extra, after.Keys
	return nil
}

// setTimes checks and sets the due time and the deadlines.
func (r *firstEvent) setTimes(o *EnqueueOptions) error {
	r.run, r.startBy, r.finishBy = dueTime{o.RunIn, o.RunAt}, o.StartBy, o.FinishBy
	if err := r.run.check("run_in", memberRunAt); err != nil {
		return err
	}
	if err := checkTime(memberStartBy, o.StartBy); err != nil {
		return err
	}
	return checkTime(memberFinishBy, o.FinishBy)
}

// checkLimits returns an [*InvalidError] if args or meta exceed the limits of the database.
func (r firstEvent) checkLimits(argsLen, maxArgs, maxMeta int64) error {
	switch {
	case argsLen > maxArgs:
		const rule = "must have at most %d bytes, got %d; enqueue a reference to a larger payload"
		return &InvalidError{Field: "args", Rule: fmt.Sprintf(rule, maxArgs, argsLen)}
	case int64(len(r.meta)) > maxMeta:
		rule := fmt.Sprintf("must have at most %d bytes, got %d", maxMeta, len(r.meta))
		return &InvalidError{Field: "meta", Rule: rule}
	}
	return nil
}
