package feed

import "context"

// Hook is called by a feed, see [Options].Hooks. Embed [HookDefaults] and write the methods that are needed: the
// compiler checks them, and later versions may add others. The goroutine that reads the feed calls its methods. It
// does not recover a panic.
type Hook interface {
	// EventsMissed is called when an audit finds that the feed skipped events, before it delivers them.
	EventsMissed(ctx context.Context, events int)

	embedsHookDefaults()
}

// HookDefaults is a [Hook] that does nothing, to be embedded.
type HookDefaults struct{}

// EventsMissed does nothing.
func (HookDefaults) EventsMissed(context.Context, int) {}

func (HookDefaults) embedsHookDefaults() {}
