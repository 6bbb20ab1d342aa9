package ledger

import (
	"bytes"
	"context"
	"encoding/json"
)

// Cause is the origin of tasks, usually an attempt of a worker.
type Cause interface {
	// Cause returns the ID of the event that caused a task, and the W3C trace context to continue, as
	// traceparent and tracestate. Each of them may be "". Cause is called once for each task and must be
	// safe for concurrent use.
	Cause() (event, traceparent, tracestate string)
}

type causeKey struct{}

// WithCause returns a context with which this package records c in the meta of every task it enqueues.
// [Meta].Causation and [Meta].Traceparent of the caller's options take precedence.
func WithCause(ctx context.Context, c Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, c)
}

// addCause returns the entry with the cause of ctx in its options.
func (e Entry) addCause(ctx context.Context) Entry {
	c, _ := ctx.Value(causeKey{}).(Cause)
	if c == nil {
		return e
	}
	var o EnqueueOptions
	if e.Options != nil {
		o = *e.Options
	}
	event, traceparent, tracestate := c.Cause()
	if o.Meta.Causation == "" {
		o.Meta.Causation = event
	}
	if o.Meta.Traceparent == "" {
		o.Meta.Traceparent, o.Meta.Tracestate = traceparent, tracestate
	}
	e.Options = &o
	return e
}

// parseCause returns the key of the task whose event is the causation in meta, the zero Key if there is no valid
// causation.
func parseCause(meta json.RawMessage) Key {
	if !bytes.Contains(meta, []byte(`"causation"`)) { // most metas: saves decoding
		return Key{}
	}
	var members map[string]json.RawMessage
	var id string
	if json.Unmarshal(meta, &members) != nil || json.Unmarshal(members["causation"], &id) != nil {
		return Key{}
	}
	k, _, _, _ := ParseEventID(id)
	return k
}
