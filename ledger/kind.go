package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// TypedKind is a kind whose args have a Go type. The zero value is invalid. Make one with [NewKind],
// once, and share it between producers and workers. It is safe for concurrent use.
type TypedKind[A any] struct {
	name  Kind
	hooks []EnqueueHook
}

// NewKind returns the kind with this name and args of type A, which are carried as JSON.
//
// Hooks are called around every enqueue of the kind: by [TypedKind.Enqueue] and
// [TypedKind.EnqueueAndCommit], and by [EnqueueMany] of what [TypedKind.Entry] returned.
// BeforeEnqueue is called in their order, AfterEnqueue in reverse, by the goroutine that enqueues. Nil
// is skipped. The function [Enqueue] and the SQL functions call no hooks.
//
// It returns an [*InvalidError] if the name is invalid.
func NewKind[A any](name Kind, hooks ...EnqueueHook) (TypedKind[A], error) {
	if err := name.Validate(); err != nil {
		return TypedKind[A]{}, err
	}
	hooks = slices.DeleteFunc(slices.Clone(hooks), func(h EnqueueHook) bool { return h == nil })
	return TypedKind[A]{name: name, hooks: hooks}, nil
}

// MustKind is [NewKind] for package variables: it panics instead of returning an error.
func MustKind[A any](name Kind, hooks ...EnqueueHook) TypedKind[A] {
	k, err := NewKind[A](name, hooks...)
	if err != nil {
		panic(err)
	}
	return k
}

// Name returns the kind without its type.
func (k TypedKind[A]) Name() Kind { return k.name }

// Key returns the key of the task of this kind for a business object.
func (k TypedKind[A]) Key(id BizID) Key { return Key{k.name, id} }

// Entry returns what [EnqueueMany] takes for one task of this kind.
func (k TypedKind[A]) Entry(id BizID, args A, o *EnqueueOptions) (Entry, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return Entry{}, &InvalidError{Field: "args", Rule: "must be JSON: " + err.Error()}
	}
	return Entry{Key: k.Key(id), Args: text, Options: o, hooks: k.hooks}, nil
}

// Enqueue is the function [Enqueue] for this kind.
func (k TypedKind[A]) Enqueue(ctx context.Context, db DB, id BizID, args A, o *EnqueueOptions) (Enqueued, error) {
	entry, err := k.Entry(id, args, o)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", k.Key(id), err)
	}
	return enqueue(ctx, db, entry)
}

// Decode returns the args that a payload holds; no payload, or JSON null, is the zero value of
// A. A of []byte or json.RawMessage receives the payload as it is. It returns a
// [*CorruptError] if the payload does not decode.
func (k TypedKind[A]) Decode(payload []byte) (A, error) {
	var args A
	switch into := any(&args).(type) {
	case *[]byte:
		*into = bytes.Clone(payload)
		return args, nil
	case *json.RawMessage:
		*into = bytes.Clone(payload)
		return args, nil
	}
	if len(payload) == 0 {
		return args, nil
	}
	if err := json.Unmarshal(payload, &args); err != nil {
		return args, &CorruptError{What: fmt.Sprintf("args of %s", k.name), Err: err}
	}
	return args, nil
}
