package workers

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	heard := make(chan string, maxBatch) // what is more is lost, and comes again
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
	source := messages{pool: p}
	for {
		select {
		case reply := <-heard:
			p.takeHandedOver(stopping, &source, reply)
		case <-stopping.Done():
			return
		}
	}
}

// takeHandedOver takes a message in hand that was delivered to somebody else. Being handed over is
// one more delivery: others have had it before.
func (p *Pool) takeHandedOver(stopping context.Context, source *messages, reply string) {
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
	m, err := source.get(stopping, d.sequence)
	if err != nil {
		return
	}
	answer(p.config.NATS, d, progressAnswer)
	if h := k.read(m, d); h != nil {
		k.decideSoon(h)
	}
}

// messages reads single messages of the stream.
type messages struct {
	pool   *Pool
	stream jetstream.Stream // nil: nobody has asked for it yet
}

// getTimeout bounds the reading of one message.
const getTimeout = 2 * time.Second

func (s *messages) get(ctx context.Context, sequence uint64) (m *nats.Msg, err error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	ctx, connected := stream.WhileConnected(ctx, s.pool.config.NATS)
	defer connected()
	if s.stream == nil {
		if s.stream, err = s.pool.js.Stream(ctx, stream.Name); err != nil {
			s.stream = nil
			return nil, err
		}
	}
	raw, err := s.stream.GetMsg(ctx, sequence)
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data}, nil
}
