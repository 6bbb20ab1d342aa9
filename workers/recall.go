package workers

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// listen hears, until quit is done, of tasks that somebody has taken from their workers. What it
// hears is only a hint, which may be lost or wrong: the head decides, and whoever hears nothing
// finds out when the lease is renewed.
func (k *kind) listen(quit context.Context) {
	recalled := newQueue[ledger.Key]()
	sub, err := k.pool.config.NATS.Subscribe(stream.RecallSubject(k.name), func(m *nats.Msg) {
		recalled.add(ledger.Key{Kind: k.name, BizID: ledger.BizID(m.Data)})
	})
	if err != nil {
		k.logger.WarnContext(quit, "cannot listen for cancelled tasks: they are noticed later", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		keys := recalled.take(quit, maxBatch)
		if len(keys) == 0 {
			return
		}
		var begun []*attempt
		for _, key := range keys {
			if a := k.hand.recall(key); a != nil {
				begun = append(begun, a)
			}
		}
		k.fenceMoved(begun)
	}
}

// fenceMoved reads the heads of tasks whose attempts run, and cancels the handlers of those that
// somebody else has appended to.
func (k *kind) fenceMoved(begun []*attempt) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	for len(begun) > 0 {
		n := min(len(begun), maxBatch)
		tasks := make([]*held, n)
		for i, a := range begun[:n] {
			tasks[i] = a.held
		}
		heads, err := k.heads(ctx, tasks)
		if err != nil {
			k.logger.WarnContext(ctx, "cannot read the heads of what runs", "tasks", n, "error", err)
			return
		}
		for i, a := range begun[:n] {
			a.fenceIfMoved(heads[i])
		}
		begun = begun[n:]
	}
}

// fenceIfMoved cancels the handler if the head is somebody else's event. The head may be older
// than what the attempt knows, or newer by the attempt's own start, which is just being recorded.
func (a *attempt) fenceIfMoved(h head) {
	a.mu.Lock()
	known := a.version
	a.mu.Unlock()
	own := h.actor == a.kind.pool.id && h.eventType.State() == ledger.StateRunning
	switch {
	case a.over.Load(), h.found && (h.version <= known || own): // over before its outcome is appended
	case h.eventType == ledger.EventCancelled:
		a.cancel(ErrCancelled)
	default:
		a.cancel(ErrFenced)
	}
}
