package workers

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// receiveRecalls hears, until quit is done, of tasks that somebody has taken from their workers. What it
// hears is only a hint, which may be lost or wrong: the head decides, and whoever hears nothing
// finds out when the lease is renewed.
func (p *Pool) receiveRecalls(quit context.Context, kinds []*kind) {
	heard := make(chan *nats.Msg, 8*attempt.MaxBatch) // what is more is lost
	bySubject := make(map[string]*kind, len(kinds))
	for _, k := range kinds {
		subject := stream.RecallSubject(k.Name)
		bySubject[subject] = k
		sub, err := p.config.NATS.ChanSubscribe(subject, heard)
		if err != nil {
			k.Logger.WarnContext(quit, "cannot listen for cancelled tasks: they are noticed later", "error", err)
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
	begun := make(map[*kind][]*attempt.Attempt)
	for n := 1; ; n++ {
		k := bySubject[m.Subject]
		if a, hasBegun := k.Tasks.Recall(ledger.Key{Kind: k.Name, BizID: ledger.BizID(m.Data)}); hasBegun {
			begun[k] = append(begun[k], a)
		}
		if n < attempt.MaxBatch {
			select {
			case m = <-more:
				continue
			default:
			}
		}
		for k, attempts := range begun {
			k.FenceMoved(attempts)
		}
		return
	}
}
