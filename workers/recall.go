package workers

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// receiveRecalls receives, until quit is done, keys of tasks that another process has taken from their workers. A
// recall is only a hint, which may be lost or wrong: the task's head decides. A worker that misses one notices when
// it renews its lease.
func (p *Pool) receiveRecalls(quit context.Context, kinds []*kind) {
	recalls := make(chan *nats.Msg, 8*attempt.MaxBatch) // excess ones are dropped
	bySubject := make(map[string]*kind, len(kinds))
	for _, k := range kinds {
		subject := stream.RecallSubject(k.Name)
		bySubject[subject] = k
		sub, err := p.config.NATS.ChanSubscribe(subject, recalls)
		if err != nil {
			k.Logger.WarnContext(quit, "cannot subscribe to cancelled tasks; they are noticed later", "error", err)
			return
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	for {
		select {
		case m := <-recalls:
			recall(bySubject, m, recalls)
		case <-quit.Done():
			return
		}
	}
}

// recall rereads the heads of recalled tasks, those of each kind in one query.
func recall(bySubject map[string]*kind, m *nats.Msg, more <-chan *nats.Msg) {
	begun := make(map[*kind][]*attempt.Attempt)
	for n := 1; ; n++ {
		k := bySubject[m.Subject]
		if a, hasBegun := k.Tasks.Recall(ledger.BizID(m.Data)); hasBegun {
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
