package workers

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// handOver tells the worker that has begun a task of a message for it. That worker may have let go of
// the task without recording an outcome, as when its database was away, and nobody else may go on with
// it as long as it lives; but the server gives the message to anybody, so by chance alone it would find
// that one late, the later the more workers there are. The message comes again unless the worker, which
// has it in hand from now on, says that it is at it: so it does not matter if nobody hears this.
func (k *kind) handOver(h *held, to head) {
	d := k.hand.lastDelivery(h)
	k.settle(h, nakAfter(min(max(to.alive, minPause), k.pool.config.AckWait/2)))
	_ = k.pool.config.NATS.Publish(stream.HandoverSubject(to.actor), []byte(d.reply))
}

// takeOwn takes in hand, until stopping is done, what others got of this worker's tasks. It hears only
// which messages these are: they come from the stream, whatever their size, and nothing else does,
// whoever may have said so.
func (p *Pool) takeOwn(stopping context.Context) {
	heard := make(chan string, 8*maxBatch) // what is more is lost, and comes again
	sub, err := p.config.NATS.Subscribe(stream.HandoverSubject(p.id), func(m *nats.Msg) {
		select {
		case heard <- string(m.Data):
		default:
		}
	})
	if err != nil {
		p.config.Logger.WarnContext(stopping, "cannot hear of own tasks from others", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case reply := <-heard:
			p.takeHandedOver(stopping, reply)
		case <-stopping.Done():
			return
		}
	}
}

// takeHandedOver takes a message in hand that was delivered to somebody else. Being handed over is
// one more delivery: others have had it before.
func (p *Pool) takeHandedOver(stopping context.Context, reply string) {
	d, err := newDelivery(reply)
	if err != nil || d.stream != stream.Name {
		return
	}
	d.count++
	p.mu.Lock()
	k := p.byName[stream.KindOf(d.durable)]
	p.mu.Unlock()
	if k == nil {
		return
	}
	if _, bytes := k.hand.size(); bytes > aheadBytes {
		return
	}
	m, err := p.message(stopping, d.sequence)
	if err != nil {
		return
	}
	answer(p.config.NATS, d, progressAnswer)
	if h := k.read(m, d); h != nil {
		k.decideSoon(h)
	}
}

// message reads a message of the stream.
func (p *Pool) message(ctx context.Context, sequence uint64) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	ctx, lost := whileConnected(ctx, p.config.NATS)
	defer lost()
	s, err := p.js.Stream(ctx, stream.Name)
	if err != nil {
		return nil, err
	}
	raw, err := s.GetMsg(ctx, sequence)
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data}, nil
}
