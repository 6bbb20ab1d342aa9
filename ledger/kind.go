package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// TypedKind is a kind whose args have a Go type. The zero value is invalid; make one with
// [NewKind], once, and share it between producers and workers.
type TypedKind[A any] struct {
	name  Kind
	hooks *enqueueHooks
}

// NewKind returns the kind with this name and args of type A, which are carried as JSON.
//
// Hooks are called around every enqueue by way of the kind: by [TypedKind.Enqueue], and by
// [EnqueueMany] of what [TypedKind.Entry] made. Each is a [BeforeEnqueueHook], an [AfterEnqueueHook] or
// both. They are called in their order, those after in the reverse one, by the goroutine that
// enqueues: a panic is the caller's. Nil is passed over. Who enqueues by the name of the kind, with
// the function [Enqueue] or in SQL, passes by them.
//
// It returns an [*InvalidError] if the name is invalid, or an error that names what is no hook.
func NewKind[A any](name Kind, hooks ...any) (TypedKind[A], error) {
	if err := name.Validate(); err != nil {
		return TypedKind[A]{}, err
	}
	h, err := newEnqueueHooks(hooks)
	if err != nil {
		return TypedKind[A]{}, fmt.Errorf("kind %s: %w", name, err)
	}
	return TypedKind[A]{name: name, hooks: h}, nil
}

// MustKind is [NewKind] for package variables: it panics where that returns an error.
func MustKind[A any](name Kind, hooks ...any) TypedKind[A] {
	k, err := NewKind[A](name, hooks...)
	if err != nil {
		panic(err)
	}
	return k
}

// Name returns the kind without its type.
func (k TypedKind[A]) Name() Kind { return k.name }

// Entry returns what [EnqueueMany] takes for one task of this kind.
func (k TypedKind[A]) Entry(id BizID, args A, o *EnqueueOptions) (Entry, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return Entry{}, &InvalidError{Field: "args", Rule: "must be JSON: " + err.Error()}
	}
	return Entry{Key: Key{k.name, id}, Args: text, Options: o, hooks: k.hooks}, nil
}

// Enqueue is the function [Enqueue] for this kind.
func (k TypedKind[A]) Enqueue(ctx context.Context, db DB, id BizID, args A, o *EnqueueOptions) (Enqueued, error) {
	entry, err := k.Entry(id, args, o)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", Key{k.name, id}, err)
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
