package ledger

import (
	"bytes"
	"context"
	"encoding/json"
)

// Cause is what leads to tasks: an attempt of a worker, as a rule.
type Cause interface {
	// Cause returns the id of the event that led to them and the W3C trace context to continue, a
	// traceparent and the tracestate beside it; "" where there is none. It is called once for every
	// task, and must be safe for concurrent use.
	Cause() (event, traceparent, tracestate string)
}

type causeKey struct{}

// WithCause returns a context that has c noted in the meta of every task that is enqueued with it
// by this package: as causation and as trace context, where the options do not say another.
func WithCause(ctx context.Context, c Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, c)
}

// causedBy adds to an entry what its context knows of its cause.
func (e Entry) causedBy(ctx context.Context) Entry {
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

// causeIn returns the task whose event a meta names as its causation; zero if it names none.
func causeIn(meta json.RawMessage) Key {
	if !bytes.Contains(meta, []byte(`"causation"`)) { // as most: not worth decoding
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
