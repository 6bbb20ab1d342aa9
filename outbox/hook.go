package outbox

import (
	"context"
	"iter"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Hook are functions that a relay calls, see [Config].Hooks. Each may be nil.
//
// Several goroutines of the relay call them, even concurrently, so they must not block. A panic is an error of the
// relay, which tries again; in LeadershipChanged and RelayFailed it is not recovered.
type Hook struct {
	// EventsMissed is called when an audit finds that the feed skipped events, before they are published.
	EventsMissed func(ctx context.Context, events int)
	// MessagesPublished is called with the number of messages that the stream has stored.
	MessagesPublished func(ctx context.Context, messages int)
	// DuplicatesDropped is called with the number of messages that a relay did not publish, because it had found
	// them on the stream.
	DuplicatesDropped func(ctx context.Context, messages int)
	// MessagesSent is called when the stream has answered for a group of messages that were sent together, or has not
	// answered within AckTimeout. Messages of a failed group are sent again, as part of another group.
	MessagesSent func(ctx context.Context, g Group)
	// PageAdvanced is called when a cursor row is committed: all events up to it are on the stream, or parked.
	PageAdvanced func(ctx context.Context)
	// EventParked is called for each event that cannot be published, with the reason.
	EventParked func(ctx context.Context, reason string)
	// MessagesLost is called when the stream has lost messages, before events are published again.
	MessagesLost func(ctx context.Context, reason string)
	// MessagesUndone is called with the number of messages on the stream whose events a crash or a
	// fail-over of the database has undone.
	MessagesUndone func(ctx context.Context, messages int)
	// LeadershipChanged is called when this relay takes the lease, and when it gives it up or loses it.
	LeadershipChanged func(ctx context.Context, leading bool)
	// RelayFailed is called when the relay cannot work, for example because a server is unavailable; the
	// relay tries again.
	RelayFailed func(ctx context.Context, err error)
}

// whole returns the hook with functions that do nothing in place of nil.
func (h Hook) whole() Hook {
	withDefault(&h.EventsMissed, func(context.Context, int) {})
	withDefault(&h.MessagesPublished, func(context.Context, int) {})
	withDefault(&h.DuplicatesDropped, func(context.Context, int) {})
	withDefault(&h.MessagesSent, func(context.Context, Group) {})
	if h.PageAdvanced == nil {
		h.PageAdvanced = func(context.Context) {}
	}
	withDefault(&h.EventParked, func(context.Context, string) {})
	withDefault(&h.MessagesLost, func(context.Context, string) {})
	withDefault(&h.MessagesUndone, func(context.Context, int) {})
	withDefault(&h.LeadershipChanged, func(context.Context, bool) {})
	withDefault(&h.RelayFailed, func(context.Context, error) {})
	return h
}

func withDefault[A any](f *func(context.Context, A), otherwise func(context.Context, A)) {
	if *f == nil {
		*f = otherwise
	}
}

// Group is a group of messages that a relay has sent to the stream together. It is valid during the call of
// [Hook].MessagesSent only.
type Group struct {
	SentAt   time.Time // when the first message was sent
	Messages int       // that were sent
	Err      error     // the first error, nil if the stream stored all messages

	messages []message
}

// Traces returns the trace contexts of the messages' producers, in the order of the messages. It leaves out messages
// without a valid trace context.
func (g Group) Traces() iter.Seq[ledger.TraceContext] {
	return func(yield func(ledger.TraceContext) bool) {
		for _, m := range g.messages {
			traceparent, tracestate := stream.TraceOf(m.msg)
			if traceparent == "" {
				continue
			}
			c, err := ledger.ParseTraceparent(traceparent)
			if err != nil {
				continue
			}
			c.State = tracestate
			if !yield(c) {
				return
			}
		}
	}
}

// hooks are the hooks of a relay, without nil functions.
type hooks []Hook

func newHooks(given []Hook) hooks {
	all := make(hooks, len(given))
	for i, h := range given {
		all[i] = h.whole()
	}
	return all
}

// each calls every hook.
func (h hooks) each(call func(Hook)) {
	for _, hook := range h {
		call(hook)
	}
}

// missed reports events that the feed skipped.
func (h hooks) missed(ctx context.Context, events int) {
	h.each(func(hook Hook) { hook.EventsMissed(ctx, events) })
}
