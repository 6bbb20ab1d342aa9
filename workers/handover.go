package workers

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// handover is a message of a task for the worker that has begun it.
type handover struct {
	Message stream.Message
	Reply   string
}

// handOver tells the worker that has begun a task of a message for it. That worker may have let go of
// the task without recording an outcome, as when its database was away, and nobody else may go on with
// it as long as it lives; but the server gives the message to anybody, so by chance alone it would find
// that one late, the later the more workers there are. The message comes again unless the worker, which
// has it in hand from now on, says that it is at it: so it does not matter if nobody hears this.
func (k *kind) handOver(h *held, to head) {
	d := k.hand.lastDelivery(h)
	k.settle(h, nakAfter(min(max(to.alive, minPause), k.pool.config.AckWait/2)))
	text, err := json.Marshal(handover{h.msg, d.reply})
	if err == nil {
		err = k.pool.config.NATS.Publish(stream.HandoverSubject(to.actor), text)
	}
	if err != nil {
		k.logger.Warn("cannot tell a worker of its task", "biz_id", string(h.msg.BizID), "worker", to.actor, "error", err)
	}
}

// takeOwn takes in hand, until stopping is done, what others got of this worker's tasks. What it hears
// is as little trusted as any message: the head decides.
func (p *Pool) takeOwn(stopping context.Context) {
	heard := make(chan *nats.Msg, maxBatch) // what is more is lost, and comes again
	sub, err := p.config.NATS.ChanSubscribe(stream.HandoverSubject(p.id), heard)
	if err != nil {
		p.config.Logger.WarnContext(stopping, "cannot hear of own tasks from others", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case m := <-heard:
			p.takeHandedOver(m.Data)
		case <-stopping.Done():
			return
		}
	}
}

func (p *Pool) takeHandedOver(text []byte) {
	var own handover
	if err := json.Unmarshal(text, &own); err != nil {
		return
	}
	d, err := newDelivery(own.Reply)
	p.mu.Lock()
	k := p.byName[own.Message.Kind]
	p.mu.Unlock()
	if err != nil || k == nil || own.Message.BizID.Validate() != nil {
		return
	}
	h, _ := k.hand.take(arrival{own.Message, d})
	answer(p.config.NATS, d, progressAnswer)
	if h != nil {
		k.decideSoon(h)
	}
}
