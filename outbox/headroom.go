package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// errFull says that the next message does not fit. The stream's consumers must come along.
var errFull = errors.New("the stream is full of messages that its consumers have not acknowledged")

const (
	// relieveEvery is how often the stream is relieved and looked at while it is short of room.
	relieveEvery = time.Second
	// pressureShare of the limit is where relieving begins, in percent.
	pressureShare = 80
)

// limit is how many bytes the stream may hold, 0 for any number.
func (s *session) limit() int64 { return max(s.info.Config.MaxBytes, 0) }

// tight reports whether the stream with more bytes is short of room.
func (s *session) tight(more int64) bool {
	return s.limit() > 0 && s.bytes+more > s.limit()/100*pressureShare
}

// room returns how many of the messages to publish now. That is a whole page, or none: what a
// full stream refuses in the middle of a page would be overtaken by what is smaller. Only a page
// that takes a large part of the stream goes in pieces.
//
// A stream that runs short of room ends the session, since the next one relieves it; one
// without room does so after a pause. 0 says that the first message never fits.
func (s *session) room(ctx context.Context, messages []message) (int, error) {
	messages = messages[:min(len(messages), stream.MaxPage)]
	var total int64
	for i := range messages {
		total += messages[i].size
	}
	if !s.tight(total) {
		return len(messages), nil
	}
	if time.Since(s.infoAt) > relieveEvery {
		if err := s.check(ctx); err != nil {
			return 0, err
		}
	}
	if s.tight(total) && time.Since(s.relay.relieved) > relieveEvery {
		s.relay.pressed = true
		return 0, errAgain
	}
	if messages[0].size > s.limit() {
		return 0, nil
	}
	fits := 0
	for after := s.bytes; fits < len(messages); fits++ {
		if after += messages[fits].size; after > s.limit() {
			break
		}
	}
	if fits == 0 || fits < len(messages) && total < s.limit()/4 {
		return 0, s.waitForRoom(ctx, errFull)
	}
	return fits, nil
}

// waitForRoom pauses and ends the session.
func (s *session) waitForRoom(ctx context.Context, why error) error {
	s.relay.full = true
	s.relay.lease.remark(why.Error())
	s.relay.hooks.each(func(h Hook) { h.RelayFailed(ctx, why) })
	if err := loop.Sleep(ctx, relieveEvery); err != nil {
		return err
	}
	return errAgain
}

// relieve purges what all consumers have acknowledged, if the stream is short of room. The
// purge is noted before it is done, so that it can never be taken for a loss.
func (s *session) relieve(ctx context.Context) error {
	r := s.relay
	if !r.pressed && !s.tight(0) {
		return nil
	}
	r.pressed, r.relieved = false, time.Now()
	floor, err := s.acknowledged(ctx)
	if err != nil {
		return err
	}
	if floor < s.info.State.FirstSeq {
		r.config.Logger.WarnContext(ctx, "stream is short of room, and nothing can be purged", "bytes", s.bytes, "limit", s.limit())
		return nil
	}
	s.mark.Purged = floor + 1
	s.mark.First = max(s.mark.First, s.mark.Purged)
	if err := s.note(ctx); err != nil {
		return err
	}
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSequence(s.mark.Purged)); err != nil {
		return fmt.Errorf("purge stream %s below %d: %w", stream.Name, s.mark.Purged, err)
	}
	r.hooks.each(func(h Hook) { h.StreamPurged(ctx, s.mark.Purged) })
	r.config.Logger.WarnContext(ctx, "stream is short of room; purged what is acknowledged", "below", s.mark.Purged, "bytes", s.bytes, "limit", s.limit())
	return s.refresh(ctx)
}

// acknowledged returns the sequence up to which nobody needs the stream any more: every durable
// consumer has acknowledged what it wants of it, and no kind or shard that has no workers yet waits
// for a message there.
func (s *session) acknowledged(ctx context.Context) (uint64, error) {
	floor := s.info.State.LastSeq // looked at before the consumers
	served := make(map[ledger.Kind]ledger.ShardSet)
	consumers := s.stream.ListConsumers(ctx)
	for c := range consumers.Info() {
		if c.Config.Durable == "" {
			continue // nobody can rely on one that vanishes with its client
		}
		if kind, shards, ok := stream.Served(c.Name); ok {
			served[kind] |= shards
		}
		floor = min(floor, consumerFloor(c, floor))
	}
	if err := consumers.Err(); err != nil {
		return 0, fmt.Errorf("list consumers of stream %s: %w", stream.Name, err)
	}
	waiting, err := s.unserved(ctx, served)
	if err != nil {
		return 0, err
	}
	for _, subject := range waiting {
		first, err := s.stream.GetMsg(ctx, s.info.State.FirstSeq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find the first message on %s: %w", subject, err)
		}
		floor = min(floor, first.Sequence-1)
	}
	return floor, nil
}

// consumerFloor is the sequence up to which a consumer has acknowledged what it wants, of those
// up to last.
func consumerFloor(c *jetstream.ConsumerInfo, last uint64) uint64 {
	switch {
	case c.NumAckPending > 0:
		return c.AckFloor.Stream
	case c.NumPending > 0:
		return max(c.AckFloor.Stream, c.Delivered.Stream)
	}
	return last
}

// unserved returns the work subjects on the stream of kinds and shards without a consumer.
func (s *session) unserved(ctx context.Context, served map[ledger.Kind]ledger.ShardSet) ([]string, error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(stream.AllSubjects))
	if err != nil {
		return nil, fmt.Errorf("list subjects of stream %s: %w", stream.Name, err)
	}
	waiting := make(map[ledger.Kind]ledger.ShardSet)
	for subject := range info.State.Subjects {
		shard, t, kind, err := stream.ParseSubject(subject)
		switch {
		case err != nil || !t.WakesWorkers() || served[kind].Has(shard):
		case served[kind] == 0:
			waiting[kind] = ledger.AllShards // one filter says it
		default:
			waiting[kind] |= ledger.ShardRange(shard, shard)
		}
	}
	var subjects []string
	for kind, shards := range waiting {
		subjects = append(subjects, stream.WorkSubjects(kind, shards)...)
	}
	return subjects, nil
}
