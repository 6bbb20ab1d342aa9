package outbox

import (
	"context"
	"iter"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Hook is called by a relay, see [Config].Hooks. Embed [HookDefaults] and write the methods that are needed:
// the compiler checks them, and later versions may add others.
//
// Several goroutines of the relay call its methods, even concurrently, so they must not block. A panic is not
// recovered.
type Hook interface {
	// EventsMissed is called when an audit finds that the feed skipped events, before they are published.
	EventsMissed(ctx context.Context, events int)
	// MessagesPublished is called with the number of messages that the stream has stored.
	MessagesPublished(ctx context.Context, messages int)
	// DuplicatesDropped is called with the number of messages that a relay did not publish, because it had found
	// them on the stream.
	DuplicatesDropped(ctx context.Context, messages int)
	// MessagesSent is called when the stream has answered for a group of messages that were sent together, or has not
	// answered within AckTimeout. Messages of a failed group are sent again, as part of another group.
	MessagesSent(ctx context.Context, g Group)
	// PageAdvanced is called when a cursor row is committed: all events up to it are on the stream, or parked.
	PageAdvanced(ctx context.Context)
	// EventParked is called for each event that cannot be published, with the reason.
	EventParked(ctx context.Context, reason string)
	// MessagesLost is called when the stream has lost messages, before events are published again.
	MessagesLost(ctx context.Context, reason string)
	// MessagesUndone is called with the number of messages on the stream whose events a crash or a
	// fail-over of the database has undone.
	MessagesUndone(ctx context.Context, messages int)
	// LeadershipChanged is called when this relay takes the lease, and when it gives it up or loses it.
	LeadershipChanged(ctx context.Context, leading bool)
	// RelayFailed is called when the relay cannot work, for example because a server is unavailable; the
	// relay tries again.
	RelayFailed(ctx context.Context, err error)
	embedsHookDefaults()
}

// HookDefaults is a [Hook] that does nothing, to be embedded.
type HookDefaults struct{}

// EventsMissed does nothing.
func (HookDefaults) EventsMissed(context.Context, int) {}

// MessagesPublished does nothing.
func (HookDefaults) MessagesPublished(context.Context, int) {}

// DuplicatesDropped does nothing.
func (HookDefaults) DuplicatesDropped(context.Context, int) {}

// MessagesSent does nothing.
func (HookDefaults) MessagesSent(context.Context, Group) {}

// PageAdvanced does nothing.
func (HookDefaults) PageAdvanced(context.Context) {}

// EventParked does nothing.
func (HookDefaults) EventParked(context.Context, string) {}

// MessagesLost does nothing.
func (HookDefaults) MessagesLost(context.Context, string) {}

// MessagesUndone does nothing.
func (HookDefaults) MessagesUndone(context.Context, int) {}

// LeadershipChanged does nothing.
func (HookDefaults) LeadershipChanged(context.Context, bool) {}

// RelayFailed does nothing.
func (HookDefaults) RelayFailed(context.Context, error) {}

func (HookDefaults) embedsHookDefaults() {}

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

// hooks are the hooks of a relay.
type hooks []Hook

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
