package watermill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// laneBatch is how many messages one request asks for. The server sends each message when the previous one is
	// acknowledged.
	laneBatch = 100
	// minLaneDelay and maxLaneDelay bound the delay before a failed lane receives again.
	minLaneDelay = 100 * time.Millisecond
	maxLaneDelay = 2 * time.Second
)

// lane is one durable consumer of a group. At most one of its messages is in flight, so it keeps the order of the
// stream for all members of the group, even when a message is delivered again.
type lane struct {
	s       *EventSubscriber
	topic   string
	durable string
	filters []string
	since   time.Time
}

// newLane returns lane i of a topic. It receives every shard whose remainder modulo Lanes is i.
func newLane(s *EventSubscriber, topic string, i int) *lane {
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
			l.filters = append(l.filters, stream.PrefixOf(c.NATS).Pattern("*", t, topic))
			continue
		}
		for shard := i; shard < ledger.Shards; shard += c.Lanes {
			l.filters = append(l.filters, stream.PrefixOf(c.NATS).Pattern(strconv.Itoa(shard), t, topic))
		}
	}
	return l
}

// consumerConfig returns the configuration of a new consumer. A FromNow consumer that vanished during a
// subscription, and is made again, begins where the subscription began.
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

// ensure creates the consumer if it is missing. On an existing consumer it changes AckWait only.
func (l *lane) ensure(ctx context.Context, again bool) error {
	if !l.s.config.NATS.IsConnected() {
		return nats.ErrDisconnected
	}
	want := l.consumerConfig(again)
	c, err := l.s.js.Consumer(ctx, stream.PrefixOf(l.s.config.NATS).Stream(), l.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = l.s.js.CreateConsumer(ctx, stream.PrefixOf(l.s.config.NATS).Stream(), want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another member was quicker
			c, err = l.s.js.Consumer(ctx, stream.PrefixOf(l.s.config.NATS).Stream(), l.durable)
		}
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("consumer %s: %w: start taskledger serve without --stream off", l.durable, err)
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
		if _, err = l.s.js.UpdateConsumer(ctx, stream.PrefixOf(l.s.config.NATS).Stream(), found); err != nil {
			return fmt.Errorf("consumer %s: %w", l.durable, err)
		}
	}
	return nil
}

// difference describes how an existing consumer differs from this lane's configuration; "" if it does not.
func (l *lane) difference(found jetstream.ConsumerConfig) string {
	filters := found.FilterSubjects
	if found.FilterSubject != "" {
		filters = append(slices.Clone(filters), found.FilterSubject)
	}
	slices.Sort(filters)
	if want := slices.Sorted(slices.Values(l.filters)); !slices.Equal(filters, want) {
		return fmt.Sprintf("its types and lanes select %v, these select %v", abridge(filters), abridge(want))
	}
	if found.MaxAckPending != 1 || found.AckPolicy != jetstream.AckExplicitPolicy {
		return "its consumer does not keep the order"
	}
	return ""
}

// abridge shortens a list of subjects for an error message.
func abridge(subjects []string) []string {
	if len(subjects) > 3 {
		return append(slices.Clone(subjects[:3]), "…")
	}
	return subjects
}

// run delivers the messages of the lane to out until ctx is done.
func (l *lane) run(ctx context.Context, out chan<- *message.Message) {
	delay := loop.Backoff{Min: minLaneDelay, Max: maxLaneDelay, Exact: true}
	for ctx.Err() == nil {
		began := time.Now()
		err := l.receive(ctx, out)
		if time.Since(began) > maxLaneDelay {
			delay.Reset()
		}
		for err != nil && ctx.Err() == nil {
			wait := delay.Next()
			l.s.config.Logger.WarnContext(ctx, "cannot receive events; retrying",
				"consumer", l.durable, "error", err, "retry_in", wait)
			_ = loop.Sleep(ctx, wait)
			err = l.ensure(ctx, true)
		}
	}
}

// receive delivers messages until ctx is done, gives the message in flight back and returns nil.
// It returns an error if the consumer must be checked.
func (l *lane) receive(ctx context.Context, out chan<- *message.Message) error {
	nc := l.s.config.NATS
	p := stream.NewPuller(nc, l.durable)
	defer func() {
		for _, m := range p.Close() {
			_ = nc.Publish(m.Reply, stream.NakAnswer)
		}
	}()
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)
	check := time.NewTicker(stream.PullExpiry)
	defer check.Stop()
	for {
		if !p.Open() {
			if err := p.Ask(laneBatch); err != nil {
				return err
			}
		}
		select {
		case m := <-p.Msgs():
			isEvent, err := p.See(m)
			if err != nil {
				return err
			}
			if isEvent {
				_ = nc.Publish(m.Reply, l.deliver(ctx, m, out)) // if that is lost, the message is delivered again
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

// deliver sends a message to out, waits until it is acked or nacked, and returns the answer for the
// server. Meanwhile it reports progress to the server, which extends the message's AckWait.
func (l *lane) deliver(ctx context.Context, m *nats.Msg, out chan<- *message.Message) (answer []byte) {
	e, err := stream.Decode(m.Subject, m.Header, m.Data)
	var event envelope.Message
	if err == nil {
		event, err = envelope.Event(e)
	}
	if err != nil {
		l.s.config.Logger.ErrorContext(ctx, "malformed message refused", "subject", m.Subject, "error", err)
		return stream.TermAnswer("malformed")
	}
	messageCtx, cancel := context.WithCancel(context.WithValue(ctx, eventKey{}, eventIn(e)))
	defer cancel()
	msg := messageOf(event)
	msg.SetContext(messageCtx)
	progress := time.NewTicker(l.s.config.AckWait / 3)
	defer progress.Stop()
	for {
		select {
		case out <- msg:
			out = nil
		case <-msg.Acked():
			return stream.AckAnswer
		case <-msg.Nacked():
			return stream.NakAfter(l.s.config.NackDelay)
		case <-progress.C:
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

// eventIn returns the event of a message of the stream, without data and meta.
func eventIn(m stream.Message) ledger.Event {
	return ledger.Event{
		Key: m.Key, Version: m.Version, Attempt: m.Attempt, Position: m.Position, Shard: m.Shard,
		Type: m.Type, RecordedAt: m.RecordedAt,
	}
}
