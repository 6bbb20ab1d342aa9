package outbox_test

import (
	"context"

	"github.com/taskledger/taskledger/outbox"
)

// hookFuncs is a hook made of functions; nil is skipped.
type hookFuncs struct {
	outbox.HookDefaults

	published  func(messages int)
	duplicates func(messages int)
	parked     func(reason string)
	lost       func(reason string)
	undone     func(messages int)
	missed     func(events int)
	leading    func(leading bool)
	failed     func(err error)
	advanced   func()
}

func (h *hookFuncs) MessagesPublished(_ context.Context, n int)        { callHook(h.published, n) }
func (h *hookFuncs) DuplicatesDropped(_ context.Context, n int)        { callHook(h.duplicates, n) }
func (h *hookFuncs) EventParked(_ context.Context, reason string)      { callHook(h.parked, reason) }
func (h *hookFuncs) MessagesLost(_ context.Context, reason string)     { callHook(h.lost, reason) }
func (h *hookFuncs) MessagesUndone(_ context.Context, n int)           { callHook(h.undone, n) }
func (h *hookFuncs) EventsMissed(_ context.Context, n int)             { callHook(h.missed, n) }
func (h *hookFuncs) LeadershipChanged(_ context.Context, leading bool) { callHook(h.leading, leading) }
func (h *hookFuncs) RelayFailed(_ context.Context, err error)          { callHook(h.failed, err) }
func (h *hookFuncs) PageAdvanced(context.Context) {
	if h.advanced != nil {
		h.advanced()
	}
}

func callHook[A any](hook func(A), argument A) {
	if hook != nil {
		hook(argument)
	}
}
