package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// firstEvent is the first event of a task, checked and encoded.
type firstEvent struct {
	key   Key
	shard Shard
	actor string
	args  json.RawMessage
	meta  json.RawMessage

	canRun bool // see [EnqueueOptions].CanRun

	run               due
	startBy, finishBy time.Time
}

// timed reports whether the row takes more than an insert.
func (r firstEvent) timed() bool {
	return !r.run.isZero() || !r.startBy.IsZero() || !r.finishBy.IsZero()
}

// row returns the first event of an entry, as its cause and its hooks have it.
func (e Entry) row(ctx context.Context) (firstEvent, error) {
	e, err := e.causedBy(ctx).hooked(ctx)
	if err != nil {
		return firstEvent{}, err
	}
	return newRow(e)
}

func newRow(e Entry) (firstEvent, error) {
	o := e.Options
	if o == nil {
		o = &EnqueueOptions{}
	}
	row := firstEvent{key: e.Key, shard: e.Key.BizID.Shard(), actor: o.Actor, args: e.Args, canRun: o.CanRun}
	if err := e.Key.Validate(); err != nil {
		return row, err
	}
	if err := row.setTimes(o); err != nil {
		return row, err
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
	if meta.timed() {
		return row, &InvalidError{Field: "meta", Rule: "must not hold times: the options RunAt, StartBy and FinishBy do"}
	}
	for _, member := range []string{memberRunAt, memberStartBy, memberFinishBy} {
		if _, ok := meta.Extra[member]; ok {
			return row, &InvalidError{Field: "meta", Rule: "must not hold " + member + ": there is an option"}
		}
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
	if _, err := decodePayload(row.args, row.meta); err != nil { // nobody could read it
		return row, &InvalidError{Field: "meta", Rule: "must say how args are encoded: " + err.Error()}
	}
	return row, nil
}

// setTimes checks when the task is to run.
func (r *firstEvent) setTimes(o *EnqueueOptions) error {
	r.run, r.startBy, r.finishBy = due{o.RunIn, o.RunAt}, o.StartBy, o.FinishBy
	if err := r.run.check("run_in", memberRunAt); err != nil {
		return err
	}
	if err := checkMoment(memberStartBy, o.StartBy); err != nil {
		return err
	}
	return checkMoment(memberFinishBy, o.FinishBy)
}

// overLimit explains an insert that did nothing although the key is free.
func (r firstEvent) overLimit(argsLen, maxArgs, maxMeta int64) error {
	switch {
	case argsLen > maxArgs:
		return &InvalidError{Field: "args", Rule: fmt.Sprintf("must have at most %d bytes, has %d; enqueue a reference to a larger payload", maxArgs, argsLen)}
	case int64(len(r.meta)) > maxMeta:
		return &InvalidError{Field: "meta", Rule: fmt.Sprintf("must have at most %d bytes, has %d", maxMeta, len(r.meta))}
	}
	return nil
}
