package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// laneAhead is how many messages are asked for at a time. The server sends one, and the next
	// one when that is acknowledged.
	laneAhead = 100
	lanePause = 100 * time.Millisecond
	maxPause  = 2 * time.Second
)

// lane is one durable consumer of a group, which lets one message be unanswered at a time: so
// it keeps the order of the stream, whoever takes part, and also when a message comes again.
type lane struct {
	s       *Subscriber
	topic   string
	durable string
	filters []string
	since   time.Time
}

// newLane returns lane i of a topic: it has every shard whose number leaves i.
func newLane(s *Subscriber, topic string, i int) *lane {
	c := s.config
	l := &lane{s: s, topic: topic, since: time.Now(), durable: stream.GroupDurable(c.Group, topic, i)}
	types := []string{"*"}
	if len(c.Types) > 0 {
		types = nil
		for _, t := range c.Types {
			types = append(types, string(t))
		}
	}
	for _, t := range types {
		if c.Lanes == 1 {
			l.filters = append(l.filters, stream.Pattern("*", t, topic))
			continue
		}
		for shard := i; shard < ledger.Shards; shard += c.Lanes {
			l.filters = append(l.filters, stream.Pattern(strconv.Itoa(shard), t, topic))
		}
	}
	return l
}

// consumerConfig is the consumer as it is made. One that is made again, because it vanished
// while somebody was subscribed, begins early enough for them.
func (l *lane) consumerConfig(again bool) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable:        l.durable,
		Description:    fmt.Sprintf("group %s on %s", l.s.config.Group, l.topic),
		FilterSubjects: l.filters,
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        l.s.config.AckWait,
		MaxDeliver:     -1,
		MaxAckPending:  1,
	}
	if len(l.filters) == 1 {
		c.FilterSubject, c.FilterSubjects = l.filters[0], nil
	}
	switch {
	case l.s.config.FromNow && again:
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &l.since
	case l.s.config.FromNow:
		c.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	return c
}

// ensure makes the consumer if it is missing. Of one that exists it changes AckWait alone.
func (l *lane) ensure(ctx context.Context, again bool) error {
	if !l.s.config.NATS.IsConnected() {
		return nats.ErrDisconnected
	}
	want := l.consumerConfig(again)
	c, err := l.s.js.Consumer(ctx, stream.Name, l.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = l.s.js.CreateConsumer(ctx, stream.Name, want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // by another member just now
			c, err = l.s.js.Consumer(ctx, stream.Name, l.durable)
		}
	}
	if err != nil {
		return fmt.Errorf("consumer %s: %w", l.durable, err)
	}
	found := c.CachedInfo().Config
	if difference := l.difference(found); difference != "" {
		return &SettingsError{Group: l.s.config.Group, Topic: l.topic, Difference: difference}
	}
	if found.AckWait != want.AckWait {
		found.AckWait = want.AckWait
		if _, err = l.s.js.UpdateConsumer(ctx, stream.Name, found); err != nil {
			return fmt.Errorf("consumer %s: %w", l.durable, err)
		}
	}
	return nil
}

// difference says what of a consumer is not as this lane needs it, "" if nothing is.
func (l *lane) difference(found jetstream.ConsumerConfig) string {
	filters := found.FilterSubjects
	if found.FilterSubject != "" {
		filters = append(slices.Clone(filters), found.FilterSubject)
	}
	slices.Sort(filters)
	if want := slices.Sorted(slices.Values(l.filters)); !slices.Equal(filters, want) {
		return fmt.Sprintf("types and lanes make it listen to %v, these to %v", abridged(filters), abridged(want))
	}
	if found.MaxAckPending != 1 || found.AckPolicy != jetstream.AckExplicitPolicy {
		return "its consumer does not keep the order"
	}
	return ""
}

// abridged is for people.
func abridged(subjects []string) []string {
	if len(subjects) > 3 {
		return append(slices.Clone(subjects[:3]), "…")
	}
	return subjects
}

// run delivers the messages of the lane to out until ctx is done.
func (l *lane) run(ctx context.Context, out chan<- *wm.Message) {
	wait := lanePause
	for ctx.Err() == nil {
		begun := time.Now()
		err := l.receive(ctx, out)
		if time.Since(begun) > maxPause {
			wait = lanePause
		}
		for err != nil && ctx.Err() == nil {
			l.s.config.Logger.WarnContext(ctx, "cannot receive events", "consumer", l.durable, "error", err, "again_in", wait)
			_ = loop.Sleep(ctx, wait)
			wait = min(2*wait, maxPause)
			err = l.ensure(ctx, true)
		}
	}
}

// receive delivers messages until ctx is done, and then returns nil, having given back what was
// under way; else it returns why the consumer must be looked after.
func (l *lane) receive(ctx context.Context, out chan<- *wm.Message) error {
	nc := l.s.config.NATS
	p := stream.NewPuller(nc, l.durable, stream.PullHeartbeat)
	defer func() {
		for _, m := range p.Close() {
			_ = nc.Publish(m.Reply, stream.NakAnswer)
		}
	}()
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)
	check := time.NewTicker(stream.PullHeartbeat)
	defer check.Stop()
	for {
		if !p.Open() {
			if err := p.Ask(laneAhead, 0); err != nil {
				return err
			}
		}
		select {
		case m := <-p.Msgs():
			work, err := p.See(m)
			if err != nil {
				return err
			}
			if work {
				_ = nc.Publish(m.Reply, l.deliver(ctx, m, out)) // if that is lost, the message comes again
			}
		case <-reconnected:
			p.Forget()
		case <-check.C:
			if p.Silent() && len(p.Msgs()) == 0 {
				return stream.ErrConsumerGone
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// deliver hands a message out and waits for the word on it, which it returns for the server.
// Meanwhile it tells the server that the message is being worked on.
func (l *lane) deliver(ctx context.Context, m *nats.Msg, out chan<- *wm.Message) (answer []byte) {
	e, err := stream.Decode(m.Subject, m.Header, m.Data)
	var msg *wm.Message
	if err == nil {
		msg, err = envelope.Event(e)
	}
	if err != nil {
		l.s.config.Logger.ErrorContext(ctx, "message refused", "subject", m.Subject, "error", err)
		return stream.TermAnswer("malformed")
	}
	event := ledger.Event{Key: e.Key, Version: e.Version, Attempt: e.Attempt, Position: e.Position, Shard: e.Shard, Type: e.Type, RecordedAt: e.RecordedAt}
	messageCtx, cancel := context.WithCancel(context.WithValue(ctx, eventKey{}, event))
	defer cancel()
	msg.SetContext(messageCtx)
	alive := time.NewTicker(l.s.config.AckWait / 3)
	defer alive.Stop()
	for {
		select {
		case out <- msg:
			out = nil
		case <-msg.Acked():
			return stream.AckAnswer
		case <-msg.Nacked():
			return stream.NakAfter(l.s.config.NackDelay)
		case <-alive.C:
			_ = l.s.config.NATS.Publish(m.Reply, stream.ProgressAnswer)
		case <-ctx.Done():
			select {
			case <-msg.Acked():
				return stream.AckAnswer
			default:
				return stream.NakAnswer
			}
		}
	}
}
