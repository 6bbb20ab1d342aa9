package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// BeforeEnqueueHook is what [NewKind] takes: it is called before a task of the kind is enqueued.
type BeforeEnqueueHook interface {
	// BeforeEnqueue may change o, which is a copy of the caller's options, with the cause that is
	// known of ctx: add to its meta, above all. An error refuses the task: enqueueing returns it,
	// wrapped, and nothing is sent. It must be safe for concurrent use.
	BeforeEnqueue(ctx context.Context, k Key, args json.RawMessage, o *EnqueueOptions) error
}

// AfterEnqueueHook is another: it is called after a task of the kind was enqueued, or was not.
type AfterEnqueueHook interface {
	// AfterEnqueue gets what enqueueing answers. The task exists only if the caller's transaction
	// commits, which nobody knows yet: to have effects elsewhere is what the task is for. It must be
	// safe for concurrent use.
	AfterEnqueue(ctx context.Context, k Key, answer Enqueued, err error)
}

// enqueueHooks are those of a kind; nil: none.
type enqueueHooks struct {
	before []BeforeEnqueueHook
	after  []AfterEnqueueHook // the last one first
}

// newEnqueueHooks returns an error that names what is no hook; nil is passed over.
func newEnqueueHooks(all []any) (*enqueueHooks, error) {
	var hooks enqueueHooks
	for i, h := range all {
		before, isBefore := h.(BeforeEnqueueHook)
		after, isAfter := h.(AfterEnqueueHook)
		switch {
		case h == nil:
			continue
		case !isBefore && !isAfter:
			return nil, fmt.Errorf("hook %d: %T is none: it has neither BeforeEnqueue nor AfterEnqueue", i, h)
		}
		if isBefore {
			hooks.before = append(hooks.before, before)
		}
		if isAfter {
			hooks.after = append(hooks.after, after)
		}
	}
	if hooks.before == nil && hooks.after == nil {
		return nil, nil
	}
	slices.Reverse(hooks.after)
	return &hooks, nil
}

// hooked returns an entry as its hooks will have it.
func (e Entry) hooked(ctx context.Context) (Entry, error) {
	if e.hooks == nil || len(e.hooks.before) == 0 {
		return e, nil
	}
	var o EnqueueOptions
	if e.Options != nil {
		o = *e.Options
	}
	o.Meta.Tags, o.Meta.Extra = slices.Clone(o.Meta.Tags), maps.Clone(o.Meta.Extra)
	for _, h := range e.hooks.before {
		if err := h.BeforeEnqueue(ctx, e.Key, e.Args, &o); err != nil {
			return e, fmt.Errorf("hook %T: %w", h, err)
		}
	}
	e.Options = &o
	return e, nil
}

// enqueued tells the hooks of an entry what came of it.
func (e Entry) enqueued(ctx context.Context, answer Enqueued, err error) {
	if e.hooks == nil {
		return
	}
	for _, h := range e.hooks.after {
		h.AfterEnqueue(ctx, e.Key, answer, err)
	}
}
