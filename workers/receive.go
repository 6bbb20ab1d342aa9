package workers

import (
	"fmt"
	"time"

	"context"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// receive pulls messages while there is room. It returns nil once ctx is done, after it has given back what was under
// way, or if the kind now has more slots than its consumer was created for. Any error means that the consumer must be
// checked.
func (k *kind) receive(ctx context.Context, durable string) error {
	nc := k.pool.config.NATS
	pending := maxAckPending(k.slots())
	p := stream.NewPuller(nc, durable, k.pool.pullExpiry())
	in := &intake{Puller: p}
	own := fetcher{kind: k}
	room := make(chan struct{}, 1)
	defer k.Tasks.StopWaiting(room)
	defer func() { k.arrive(p.Close()...) }()
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)
	check := time.NewTicker(k.pool.pullExpiry())
	defer check.Stop()

	for {
		if maxAckPending(k.slots()) > pending {
			return nil // the consumers must be updated
		}
		if !p.Open() {
			if r := k.Tasks.RoomFor(room, max(1, int(k.pairs.Load()))); r.Tasks > 0 {
				if err := p.Ask(r.Tasks, r.Bytes); err != nil {
					return err
				}
			}
		}
		own.poll()
		select {
		case m := <-p.Msgs():
			if err := k.takeBatch(in, m); err != nil {
				return err
			}
		case <-room:
		case <-own.ready():
		case <-own.running:
			own.running = nil
		case <-reconnected:
			p.Forget()
		case <-check.C:
			if p.Silent() {
				return stream.ErrConsumerGone
			}
		case <-ctx.Done():
			if k.IsStopping() { // of a kind that is paused, messages may wait
				p.Finish(func(m *nats.Msg) { k.arrive(m) })
			}
			return nil
		}
	}
}

// intake is a puller and the memory for one batch.
type intake struct {
	*stream.Puller
	batch []*nats.Msg
}

// takeBatch takes a message and those that are buffered behind it, so that they are decided together.
func (k *kind) takeBatch(p *intake, m *nats.Msg) error {
	batch := p.batch[:0]
	defer func() {
		k.arrive(batch...)
		clear(batch)
		p.batch = batch[:0]
	}()
	for {
		work, err := p.See(m)
		if err != nil {
			return err
		}
		if work {
			batch = append(batch, m)
		}
		if len(batch) == attempt.MaxBatch {
			return nil
		}
		select {
		case m = <-p.Msgs():
		default:
			return nil
		}
	}
}

// arrive adds messages to those in flight, and decides those that need it.
func (k *kind) arrive(msgs ...*nats.Msg) {
	fresh := make([]*attempt.Task, 0, len(msgs))
	for _, m := range msgs {
		d, _, err := inflight.ParseDelivery(m.Reply)
		if err != nil {
			k.Logger.Warn("message without a reply subject", "subject", m.Subject, "error", err)
			continue
		}
		if t := k.read(m, d); t != nil {
			fresh = append(fresh, t)
		}
	}
	k.decide(fresh...)
}

// read adds a message to those in flight, and returns its task if its head must be read. It refuses an invalid message.
func (k *kind) read(m *nats.Msg, d inflight.Delivery) *attempt.Task {
	msg, err := stream.Decode(m.Subject, m.Header, m.Data)
	if err == nil && (msg.Kind != k.Name || !msg.Type.WakesWorkers()) {
		err = fmt.Errorf("%w: not work of this kind", stream.ErrMalformed)
	}
	if err != nil {
		k.noticed(NoticeMalformed)
		k.Logger.Warn("message refused", "subject", m.Subject, "sequence", d.Sequence, "error", err)
		inflight.Answer(k.pool.config.NATS, d, stream.TermAnswer("malformed"))
		return nil
	}
	if d.Count > 1 {
		k.noticed(NoticeRedelivered)
	}
	t, adopted := k.Tasks.Add(inflight.Arrival{Message: msg, Delivery: d})
	if adopted {
		k.noticed(NoticeAdopted)
	}
	return t
}

// addAgain adds a message that waited for another one of its task.
func (k *kind) addAgain(a inflight.Arrival) {
	if t, _ := k.Tasks.Add(a); t != nil {
		k.decide(t)
	}
}
