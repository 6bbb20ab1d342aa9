package workers

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// handOver sends a message to the worker that has begun its task. That worker may have lost its connection to NATS for
// longer than AckWait, and no other worker may continue the task while that one lives. Left to chance, the server would
// deliver the message to that worker late, the later the more workers there are. The message is delivered again unless
// that worker, which has it in flight from now on, sends progress for it; so a handover may be lost.
func (k *kind) handOver(t *attempt.Task, to attempt.Head) {
	if !k.Tasks.HasMessages() {
		k.Later(t, k.pool.config.AckWait/2)
		return
	}
	d := k.Tasks.LastDelivery(t)
	k.Tasks.Answer(t, stream.NakAfter(min(max(to.Alive, minPause), k.pool.config.AckWait/2)))
	_ = k.pool.config.NATS.Publish(stream.HandoverSubject(to.Actor), []byte(d.Reply))
}

// receiveHandovers adds messages that other workers got for this worker's tasks to those in flight, until stopping is
// done. A handover names only a message of the stream, which is then read from the stream, so any client may send
// one.
func (p *Pool) receiveHandovers(stopping context.Context) {
	replies := make(chan string, attempt.MaxBatch) // excess ones are dropped: their messages are delivered again
	sub, err := p.config.NATS.Subscribe(stream.HandoverSubject(p.id), func(m *nats.Msg) {
		select {
		case replies <- string(m.Data):
		default:
		}
	})
	if err != nil {
		p.config.Logger.WarnContext(stopping, "cannot receive handovers from other workers", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	source := messages{pool: p}
	for {
		select {
		case reply := <-replies:
			p.takeHandedOver(stopping, &source, reply)
		case <-stopping.Done():
			return
		}
	}
}

// takeHandedOver adds a message that was delivered to another worker to those in flight. The handover counts as one
// more delivery.
func (p *Pool) takeHandedOver(stopping context.Context, source *messages, reply string) {
	d, from, err := inflight.ParseDelivery(reply)
	if err != nil || from.Stream != stream.Name {
		return
	}
	d.Count++
	p.mu.Lock()
	k := p.byName[stream.KindOf(from.Durable)]
	p.mu.Unlock()
	if k == nil {
		return
	}
	if _, bytes := k.Tasks.Size(); bytes > inflight.AheadBytes {
		return
	}
	m, err := source.get(stopping, d.Sequence)
	if err != nil {
		return
	}
	inflight.Answer(p.config.NATS, d, stream.ProgressAnswer)
	if t := k.read(m, d); t != nil {
		k.decide(t)
	}
}

// messages reads single messages of the stream.
type messages struct {
	pool   *Pool
	stream jetstream.Stream // nil until first used
}

// getTimeout bounds the time to read one message.
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
