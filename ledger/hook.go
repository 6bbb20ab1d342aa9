package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// EnqueueHook contains functions that are called before and after every enqueue of a kind, see [NewKind]. Each may be
// nil. They must be safe for concurrent use. A panic in one is not recovered.
type EnqueueHook struct {
	// BeforeEnqueue is called before a task of the kind is enqueued. It may change o, a copy of the caller's options
	// with the cause of ctx. If it returns an error, the enqueue sends nothing and returns that error, wrapped.
	BeforeEnqueue func(ctx context.Context, k Key, args json.RawMessage, o *EnqueueOptions) error
	// AfterEnqueue is called with the result of an enqueue. Its transaction is usually still open, and the
	// task exists only if that commits. Effects outside of the transaction belong in the task's handler.
	AfterEnqueue func(ctx context.Context, k Key, answer Enqueued, err error)
}

// callBefore calls BeforeEnqueue of the entry's hooks and returns the entry with the options as they set them.
func (e Entry) callBefore(ctx context.Context) (Entry, error) {
	if len(e.hooks) == 0 {
		return e, nil
	}
	var o EnqueueOptions
	if e.Options != nil {
		o = *e.Options
	}
	o.Meta.Tags, o.Meta.Extra = slices.Clone(o.Meta.Tags), maps.Clone(o.Meta.Extra)
	for _, h := range e.hooks {
		if h.BeforeEnqueue == nil {
			continue
		}
		if err := h.BeforeEnqueue(ctx, e.Key, e.Args, &o); err != nil {
			return e, fmt.Errorf("hook: %w", err)
		}
	}
	e.Options = &o
	return e, nil
}

// callAfter calls AfterEnqueue of the entry's hooks, the last hook first.
func (e Entry) callAfter(ctx context.Context, answer Enqueued, err error) {
	for _, h := range slices.Backward(e.hooks) {
		if h.AfterEnqueue != nil {
			h.AfterEnqueue(ctx, e.Key, answer, err)
		}
	}
}
