package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second

	// manyAsking is how many questions about consumers a pool has at a time: a server drops them all
	// where it has too many.
	manyAsking = 32

	// beatsPerSecond are at most so many from all consumers of a pool.
	beatsPerSecond = 200

	// manyPending is the least that a consumer lets be unanswered at a time, by all its workers:
	// above everything they can have in hand, since delayed naks count too.
	manyPending = 50_000
)

// errConsumerRefused says that the server will not have the consumer, today or tomorrow.
var errConsumerRefused = errors.New("the consumer was refused")

// serveUnpaused receives the messages of the kind's tasks in these shards until ctx is done. It
// returns an error only if going on is useless.
func (k *kind) serveUnpaused(ctx context.Context, shards ledger.ShardSet) error {
	k.pairs.Add(1)
	defer k.pairs.Add(-1)
	k.mine.add(shards, 1)
	defer k.mine.add(shards, -1)
	both, ctx := errgroup.WithContext(ctx)
	made := make(chan struct{})
	for i, c := range stream.Consumers(k.name, shards) {
		both.Go(func() error {
			if i == 0 {
				return k.consume(ctx, shards, c.Durable, func() { close(made) })
			}
			select {
			case <-made: // all of them
				return k.consume(ctx, shards, c.Durable, nil)
			case <-ctx.Done():
				return nil
			}
		})
	}
	return both.Wait()
}

// consume takes the messages of a consumer of the kind in hand until ctx is done. If the consumer or
// the stream vanishes, or is not there yet, it goes on trying. It returns an error only if that is
// useless. made is called once all consumers are there; nil: they are.
func (k *kind) consume(ctx context.Context, shards ledger.ShardSet, durable string, made func()) error {
	delay := loop.Backoff{Max: maxPause, Exact: true}
	ensured := made == nil
	for ctx.Err() == nil {
		var err error
		if !ensured {
			err = k.ensureConsumers(ctx, shards)
		}
		ensured = false
		if errors.Is(err, errConsumerRefused) || k.pool.config.NATS.IsClosed() && ctx.Err() == nil {
			return err
		}
		if err == nil {
			if made != nil {
				made()
				made = nil
			}
			begun := time.Now()
			err = k.receive(ctx, durable)
			if time.Since(begun) > maxPause {
				delay.Reset()
			}
		}
		if err != nil && ctx.Err() == nil {
			again := delay.Next()
			k.pool.repeated.warn(k.pool.config.Logger, "cannot receive messages", "kind", string(k.name), "error", err, "again_in", again)
			_ = loop.Sleep(ctx, again)
		}
	}
	return nil
}

// consumerConfig is a consumer that all workers of the kind share. There is no BackOff, which
// would replace AckWait, and no MaxDeliver, which would leave messages behind: how often a task
// is tried is the ledger's to decide.
func (k *kind) consumerConfig(c stream.Consumer) jetstream.ConsumerConfig {
	config := jetstream.ConsumerConfig{
		Durable:        c.Durable,
		Description:    "workers of " + string(k.name),
		FilterSubjects: c.Filters,
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        k.pool.config.AckWait,
		MaxDeliver:     -1,
		MaxAckPending:  k.mostPending(),
	}
	if len(c.Filters) == 1 { // the server goes another, cheaper way with this one
		config.FilterSubject, config.FilterSubjects = c.Filters[0], nil
	}
	return config
}

// mostPending is how many messages the kind's consumers let be unanswered.
func (k *kind) mostPending() int { return max(manyPending, 20*k.slots()) }

// ensureConsumers creates the kind's durable consumers for these shards that are missing, in
// their order, unless they would overlap others.
func (k *kind) ensureConsumers(ctx context.Context, shards ledger.ShardSet) error {
	if !k.pool.config.NATS.IsConnected() {
		return nats.ErrDisconnected
	}
	ctx, cancel := stream.WhileConnected(ctx, k.pool.config.NATS)
	defer cancel()
	if err := k.checkOverlap(ctx, shards); err != nil {
		return err
	}
	var made []string
	for _, c := range stream.Consumers(k.name, shards) {
		isNew, err := k.ensureConsumer(ctx, k.consumerConfig(c))
		if err != nil {
			return err
		}
		if isNew {
			made = append(made, c.Durable)
		}
	}
	if made == nil {
		return nil
	}
	err := k.checkOverlap(ctx, shards) // with those that were made meanwhile
	if errors.Is(err, errConsumerRefused) {
		k.unmake(made)
	}
	return err
}

// unmake deletes consumers that were just made.
func (k *kind) unmake(durables []string) {
	ctx, cancel := k.pool.operation()
	defer cancel()
	for _, durable := range durables {
		if err := k.pool.js.DeleteConsumer(ctx, stream.Name, durable); err != nil {
			k.logger.WarnContext(ctx, "cannot delete the refused consumer", "consumer", durable, "error", err)
		}
	}
}

// ensureConsumer creates a durable consumer if it is missing, and brings its AckWait and
// MaxAckPending up to date; nothing else of one that exists is touched. It reports whether it was
// missing.
func (k *kind) ensureConsumer(ctx context.Context, want jetstream.ConsumerConfig) (isNew bool, err error) {
	select {
	case k.pool.asking <- struct{}{}:
		defer func() { <-k.pool.asking }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	c, err := k.pool.js.Consumer(ctx, stream.Name, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		_, err = k.pool.js.CreateConsumer(ctx, stream.Name, want)
		if errors.Is(err, jetstream.ErrConsumerExists) {
			return false, fmt.Errorf("create consumer %s: %w", want.Durable, err) // by somebody else just now: look again
		}
		isNew = err == nil
	case err == nil:
		found := c.CachedInfo().Config
		if found.AckWait == want.AckWait && found.MaxAckPending >= want.MaxAckPending {
			break
		}
		want.MaxAckPending = max(want.MaxAckPending, found.MaxAckPending)
		k.logger.InfoContext(ctx, "consumer changed", "consumer", want.Durable, "ack_wait", want.AckWait, "max_ack_pending", want.MaxAckPending)
		_, err = k.pool.js.UpdateConsumer(ctx, stream.Name, want)
	}
	if stream.TooManyConsumers(err) {
		return false, fmt.Errorf("%w: consumer %s: %w: nats stream edit %s --max-consumers 1000000, or raise the account's limit",
			errConsumerRefused, want.Durable, err, stream.Name)
	}
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil && api.APIError().Code == 400 {
		return false, fmt.Errorf("%w: consumer %s: %w", errConsumerRefused, want.Durable, err)
	}
	if err != nil {
		return false, fmt.Errorf("consumer %s: %w", want.Durable, err)
	}
	return isNew, nil
}

// heartbeat is how often the server tells each consumer of the pool that its request is still there:
// the more there are the less often, and the later one that is gone is missed.
func (p *Pool) heartbeat() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	consumers := 2 * len(p.kinds) * max(1, p.config.ShardGroups)
	return max(stream.PullHeartbeat, time.Duration(consumers)*time.Second/beatsPerSecond)
}

// receive pulls messages as long as there is room in hand. It returns nil once ctx is done, having given back what was
// under way, or why the consumer must be looked after; nil as well if the kind has more slots now
// than it was made for.
func (k *kind) receive(ctx context.Context, durable string) error {
	nc := k.pool.config.NATS
	pending := k.mostPending()
	p := stream.NewPuller(nc, durable, k.pool.heartbeat())
	in := &intake{Puller: p}
	own := fetcher{kind: k}
	room := make(chan struct{}, 1)
	defer k.hand.stopWaiting(room)
	defer func() { k.arrive(p.Close()...) }()
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)
	check := time.NewTicker(k.pool.heartbeat())
	defer check.Stop()

	for {
		if k.mostPending() > pending {
			return nil // its consumers are to be changed
		}
		if !p.Open() {
			if r := k.hand.roomFor(room, max(1, int(k.pairs.Load()))); r.tasks > 0 {
				if err := p.Ask(r.tasks, r.bytes); err != nil {
					return err
				}
			}
		}
		own.look()
		select {
		case m := <-p.Msgs():
			if err := k.admit(in, m); err != nil {
				return err
			}
		case <-room:
		case <-own.ready():
		case <-own.over:
			own.over = nil
		case <-reconnected:
			p.Forget()
		case <-check.C:
			if p.Silent() {
				return stream.ErrConsumerGone
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// intake is a puller and the memory for what it brings at a time.
type intake struct {
	*stream.Puller
	batch []*nats.Msg
}

// admit takes in hand a message and all that stand behind it, so that they are decided together.
func (k *kind) admit(p *intake, m *nats.Msg) error {
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
		if len(batch) == maxBatch {
			return nil
		}
		select {
		case m = <-p.Msgs():
		default:
			return nil
		}
	}
}

// arrive takes messages in hand, to be decided.
func (k *kind) arrive(msgs ...*nats.Msg) {
	fresh := make([]*held, 0, len(msgs))
	for _, m := range msgs {
		d, err := newDelivery(m.Reply)
		if err != nil {
			k.logger.Warn("message without a reply subject", "subject", m.Subject, "error", err)
			continue
		}
		if h := k.read(m, d); h != nil {
			fresh = append(fresh, h)
		}
	}
	k.decideSoon(fresh...)
}

// read takes a message in hand and returns its task if it has to be decided. One that cannot be read
// is refused.
func (k *kind) read(m *nats.Msg, d delivery) *held {
	msg, err := stream.Decode(m.Subject, m.Header, m.Data)
	if err == nil && (msg.Kind != k.name || !msg.Type.WakesWorkers()) {
		err = fmt.Errorf("%w: not work of this kind", stream.ErrMalformed)
	}
	if err != nil {
		k.noticed(NoticeMalformed)
		k.logger.Warn("message refused", "subject", m.Subject, "sequence", d.sequence, "error", err)
		answer(k.pool.config.NATS, d, termAnswer("malformed"))
		return nil
	}
	return k.take(arrival{msg, d})
}

// take takes one message in hand and returns its task if it has to be decided.
func (k *kind) take(a arrival) *held {
	if a.delivery.count > 1 {
		k.noticed(NoticeRedelivered)
	}
	h, adopted := k.hand.take(a)
	if adopted {
		k.noticed(NoticeAdopted)
	}
	return h
}

// takeAgain takes up a message that had to wait for another one of its task.
func (k *kind) takeAgain(a arrival) {
	if h, _ := k.hand.take(a); h != nil {
		k.decideSoon(h)
	}
}

// settle answers all deliveries of a task.
func (k *kind) settle(h *held, text []byte) { k.hand.settle(h, text, k.takeAgain) }

// retryDelay is how long a message that could not be worked on stays away: longer each time,
// but never long enough to matter to MaxAckPending.
func (k *kind) retryDelay(h *held) time.Duration {
	n := min(k.hand.deliveriesOf(h), 10)
	return min(minPause<<n, k.pool.config.AckWait/2)
}
