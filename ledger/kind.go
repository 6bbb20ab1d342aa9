package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// TypedKind is a kind with args of the Go type A. The zero value is invalid: create one with [NewKind] and
// share it between producers and workers. It is safe for concurrent use.
type TypedKind[A any] struct {
	name  Kind
	hooks []EnqueueHook

	isSame func(was, is json.RawMessage) bool // nil: as JSON values

	priority Priority // of its tasks, if an enqueue names none
}

// NewKind returns the kind with this name and args of type A, which are stored as JSON.
//
// Hooks are called before and after every enqueue of the kind: by [TypedKind.Enqueue],
// [TypedKind.EnqueueAndCommit], and by [EnqueueMany] and [EnqueueInOrder] for entries of [TypedKind.Entry].
// The calling goroutine calls BeforeEnqueue in the order of hooks, and AfterEnqueue in reverse. The function [Enqueue]
// and the SQL functions call no hooks.
//
// It returns an [*InvalidError] if the name is invalid.
func NewKind[A any](name Kind, hooks ...EnqueueHook) (TypedKind[A], error) {
	if err := name.Validate(); err != nil {
		return TypedKind[A]{}, err
	}
	return TypedKind[A]{name: name, hooks: slices.Clone(hooks)}, nil
}

// MustKind is [NewKind] for package variables: it panics if the name is invalid.
func MustKind[A any](name Kind, hooks ...EnqueueHook) TypedKind[A] {
	k, err := NewKind[A](name, hooks...)
	if err != nil {
		panic(err)
	}
	return k
}

// Name returns the name of the kind.
func (k TypedKind[A]) Name() Kind { return k.name }

// Key returns the key of the task of this kind for the business object id.
func (k TypedKind[A]) Key(id BizID) Key { return Key{k.name, id} }

// Entry returns an entry of this kind for [EnqueueMany] and [EnqueueInOrder]. It returns an [*InvalidError]
// if args do not encode as JSON.
func (k TypedKind[A]) Entry(id BizID, args A, o *EnqueueOptions) (Entry, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return Entry{}, &InvalidError{Field: "args", Rule: "must be JSON: " + err.Error()}
	}
	return Entry{
		Key: k.Key(id), Args: text, Options: o, hooks: k.hooks, isSame: k.isSame, priority: k.priority,
	}, nil
}

// WithSameArgs returns the kind with a comparison of Go values. It is for args that may change without changing their
// meaning, such as an added field with its zero value, or a time in another zone.
//
// An enqueue of an existing task whose args are not equal as JSON values calls isSame with the decoded args, the
// task's and the new ones. Its result is [Enqueued].SameArgs. Args that do not decode are not the same, nor are the
// args of a task that another login enqueued. isSame must be safe for concurrent use.
func (k TypedKind[A]) WithSameArgs(isSame func(was, is A) bool) TypedKind[A] {
	k.isSame = func(was, is json.RawMessage) bool {
		a, err := k.Decode(was)
		if err != nil {
			return false
		}
		b, err := k.Decode(is)
		return err == nil && isSame(a, b)
	}
	return k
}

// WithPriority returns the kind with a default priority: of each task that this program enqueues by the returned kind
// without [EnqueueOptions].Priority. Enqueues in SQL, over HTTP, by the command and by the function [Enqueue] do not
// use it. An enqueue returns an [*InvalidError] if p is not a priority.
func (k TypedKind[A]) WithPriority(p Priority) TypedKind[A] {
	k.priority = p
	return k
}

// Enqueue enqueues a task of this kind: see the function [Enqueue]. It also returns an [*InvalidError] if
// args do not encode as JSON. It calls the hooks of the kind. It never commits.
func (k TypedKind[A]) Enqueue(ctx context.Context, db DB, id BizID, args A, o *EnqueueOptions) (Enqueued, error) {
	entry, err := k.Entry(id, args, o)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", k.Key(id), err)
	}
	return enqueue(ctx, db, entry)
}

// Decode returns the args in a payload. An empty payload and JSON null decode to the zero value of A. If A
// is []byte or json.RawMessage, it returns a copy of the payload. It returns a [*CorruptError] if the payload
// does not decode.
func (k TypedKind[A]) Decode(payload []byte) (A, error) {
	return decodeAs[A]("args of ", string(k.name), payload)
}

// decodeAs decodes JSON as [TypedKind.Decode] does. what and name are the subject of its error.
func decodeAs[A any](what, name string, payload []byte) (A, error) {
	var value A
	switch into := any(&value).(type) {
	case *[]byte:
		*into = bytes.Clone(payload)
		return value, nil
	case *json.RawMessage:
		*into = bytes.Clone(payload)
		return value, nil
	}
	if len(payload) == 0 {
		return value, nil
	}
	if err := json.Unmarshal(payload, &value); err != nil {
		return value, &CorruptError{What: what + name, Err: err}
	}
	return value, nil
}
