package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// EnqueueHook is called around every enqueue of a kind, see [NewKind]. Embed [EnqueueHookDefaults] and write the
// methods that are needed: the compiler checks them, and later versions may add others.
// Its methods must be safe for concurrent use. A panic is the caller's.
type EnqueueHook interface {
	// BeforeEnqueue is called before a task of the kind is enqueued. It may change o, a copy of the
	// caller's options to which the cause in ctx was added. An error refuses the task: enqueueing
	// returns it, wrapped, and sends nothing.
	BeforeEnqueue(ctx context.Context, k Key, args json.RawMessage, o *EnqueueOptions) error
	// AfterEnqueue is called with the answer of an enqueue, in a transaction that is still open. The
	// task exists only if that commits; effects outside the transaction belong into the task's handler.
	AfterEnqueue(ctx context.Context, k Key, answer Enqueued, err error)

	embedsEnqueueHookDefaults()
}

// EnqueueHookDefaults is a [EnqueueHook] that does nothing, to be embedded.
type EnqueueHookDefaults struct{}

// BeforeEnqueue returns nil.
func (EnqueueHookDefaults) BeforeEnqueue(context.Context, Key, json.RawMessage, *EnqueueOptions) error {
	return nil
}

// AfterEnqueue does nothing.
func (EnqueueHookDefaults) AfterEnqueue(context.Context, Key, Enqueued, error) {}

func (EnqueueHookDefaults) embedsEnqueueHookDefaults() {}

// hooked returns an entry as the hooks of its kind change it.
func (e Entry) hooked(ctx context.Context) (Entry, error) {
	if len(e.hooks) == 0 {
		return e, nil
	}
	var o EnqueueOptions
	if e.Options != nil {
		o = *e.Options
	}
	o.Meta.Tags, o.Meta.Extra = slices.Clone(o.Meta.Tags), maps.Clone(o.Meta.Extra)
	for _, h := range e.hooks {
		if err := h.BeforeEnqueue(ctx, e.Key, e.Args, &o); err != nil {
			return e, fmt.Errorf("hook %T: %w", h, err)
		}
	}
	e.Options = &o
	return e, nil
}

// enqueued calls the hooks of an entry with the answer, the last hook first.
func (e Entry) enqueued(ctx context.Context, answer Enqueued, err error) {
	for _, h := range slices.Backward(e.hooks) {
		h.AfterEnqueue(ctx, e.Key, answer, err)
	}
}
