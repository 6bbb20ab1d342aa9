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
func (p *Pool) listen(quit context.Context, kinds []*kind) {
	heard := make(chan *nats.Msg, 8*maxBatch) // what is more is lost
	bySubject := make(map[string]*kind, len(kinds))
	for _, k := range kinds {
		subject := stream.RecallSubject(k.name)
		bySubject[subject] = k
		sub, err := p.config.NATS.ChanSubscribe(subject, heard)
		if err != nil {
			k.logger.WarnContext(quit, "cannot listen for cancelled tasks: they are noticed later", "error", err)
			return
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	for {
		select {
		case m := <-heard:
			recall(bySubject, m, heard)
		case <-quit.Done():
			return
		}
	}
}

// recall looks at the tasks that were heard of, those of each kind together.
func recall(bySubject map[string]*kind, m *nats.Msg, more <-chan *nats.Msg) {
	begun := make(map[*kind][]*attempt)
	for n := 1; ; n++ {
		k := bySubject[m.Subject]
		if a := k.hand.recall(ledger.Key{Kind: k.name, BizID: ledger.BizID(m.Data)}); a != nil {
			begun[k] = append(begun[k], a)
		}
		if n < maxBatch {
			select {
			case m = <-more:
				continue
			default:
			}
		}
		for k, attempts := range begun {
			k.fenceMoved(attempts)
		}
		return
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
