package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// errFull is the error of a message that does not fit. Consumers must acknowledge messages before the relay
// can publish more.
var errFull = errors.New("the stream is full of messages that its consumers have not acknowledged")

const (
	// purgeEvery is the least time between two purges, and between two checks of a nearly full stream.
	purgeEvery = time.Second
	// nearlyFullPercent of the limit is where the relay begins to purge.
	nearlyFullPercent = 80
)

// streamState is the state of the stream when it was last read, with an estimate of its size since then.
type streamState struct {
	info   *jetstream.StreamInfo
	readAt time.Time
	bytes  int64
}

func (s *streamState) set(info *jetstream.StreamInfo) {
	s.info, s.readAt, s.bytes = info, time.Now(), int64(info.State.Bytes)
}

// limit returns how many bytes the stream may hold, 0 for no limit.
func (s *streamState) limit() int64 { return max(s.info.Config.MaxBytes, 0) }

// isNearlyFull reports whether the stream with more bytes exceeds nearlyFullPercent.
func (s *streamState) isNearlyFull(more int64) bool { return isNearlyFull(s.bytes+more, s.limit()) }

// isNearlyFull reports whether a number of bytes exceeds nearlyFullPercent of a limit; a limit below 1 is no limit.
func isNearlyFull(bytes, limit int64) bool {
	return limit > 0 && bytes > limit/100*nearlyFullPercent
}

// countFitting returns how many of the messages to publish now: a whole page, or 0 if the first message
// exceeds the stream's limit. A part of a page would let smaller messages overtake those that a full stream
// refuses. Only a page that takes a quarter of the stream goes in parts.
//
// A nearly full stream ends the session, because the next one purges. A full stream ends it after a delay.
func (s *session) countFitting(ctx context.Context, messages []message) (int, error) {
	messages = messages[:min(len(messages), stream.MaxPage)]
	var total int64
	for i := range messages {
		if s.state.limit() > 0 && messages[i].size > s.state.limit() { // no purge makes room for it
			messages = messages[:i]
			break
		}
		total += messages[i].size
	}
	if len(messages) == 0 {
		return 0, nil
	}
	if !s.state.isNearlyFull(total) {
		return len(messages), nil
	}
	if time.Since(s.state.readAt) > purgeEvery {
		if err := s.check(ctx); err != nil {
			return 0, err
		}
	}
	if s.state.isNearlyFull(total) && time.Since(s.relay.purgedAt) > purgeEvery {
		s.relay.mustPurge = true
		return 0, errAgain
	}
	fits := 0
	for after := s.state.bytes; fits < len(messages); fits++ {
		if after += messages[fits].size; after > s.state.limit() {
			break
		}
	}
	if fits == 0 || fits < len(messages) && total < s.state.limit()/4 {
		return 0, s.waitForRoom(ctx, errFull)
	}
	return fits, nil
}

// waitForRoom waits a while and ends the session.
func (s *session) waitForRoom(ctx context.Context, why error) error {
	s.relay.lease.setNote(why.Error())
	s.relay.hooks.each(func(h Hook) { h.RelayFailed(ctx, why) })
	if err := loop.Sleep(ctx, purgeEvery); err != nil {
		return err
	}
	return errAgain
}

// purge removes messages that are not needed, see [floors], if the stream is nearly full. It writes
// the mark before it purges, so that the next check does not take the purge for a loss.
func (s *session) purge(ctx context.Context) error {
	r := s.relay
	if !r.mustPurge && !s.state.isNearlyFull(0) {
		return nil
	}
	r.mustPurge, r.purgedAt = false, time.Now()
	f, err := s.readFloors(ctx)
	if err != nil {
		return err
	}
	floor := f.purgeable(s.state.info.State)
	if floor < s.state.info.State.FirstSeq {
		r.config.Logger.WarnContext(ctx, "stream is nearly full, and nothing can be purged",
			"bytes", s.state.bytes, "limit", s.state.limit())
		return nil
	}
	s.mark.Purged = floor + 1
	s.mark.First = max(s.mark.First, s.mark.Purged)
	if err := s.writeMark(ctx); err != nil {
		return err
	}
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSequence(s.mark.Purged)); err != nil {
		return fmt.Errorf("purge stream %s below %d: %w", stream.Name, s.mark.Purged, err)
	}
	r.hooks.each(func(h Hook) { h.StreamPurged(ctx, s.mark.Purged) })
	r.config.Logger.WarnContext(ctx, "stream is nearly full; purged messages that no consumer needs",
		"below", s.mark.Purged, "unserved_from", min(f.spare, floor)+1,
		"bytes", s.state.bytes, "limit", s.state.limit())
	return s.refresh(ctx)
}

// floors are the sequences up to which messages are not needed.
type floors struct {
	acked uint64 // by every durable consumer
	spare uint64 // by them, and by kinds and shards that have no workers yet
}

// purgeable returns the sequence up to which the relay may purge a nearly full stream of a state. Messages that a
// durable consumer has not acknowledged stay. Kinds without workers keep at most the newer half of the messages: the
// reconciler makes tasks available again that lost their message, once their kind has workers.
func (f floors) purgeable(state jetstream.StreamState) uint64 {
	older := (state.LastSeq + 1 - min(state.FirstSeq, state.LastSeq+1)) / 2
	return min(f.acked, max(f.spare, state.FirstSeq+older-1))
}

// readFloors reads the floors of the stream from its consumers and its work subjects.
func (s *session) readFloors(ctx context.Context) (floors, error) {
	last := s.state.info.State.LastSeq // read before the consumers
	f := floors{acked: last, spare: last}
	served := make(map[ledger.Kind]ledger.ShardSet)
	consumers := s.stream.ListConsumers(ctx)
	for c := range consumers.Info() {
		if c.Config.Durable == "" {
			continue // it vanishes with its client
		}
		f.acked = min(f.acked, consumerFloor(c, last))
		kind, shards, ok := stream.ServedBy(c.Config)
		if ok && c.Name == stream.Durable(kind, shards) { // the later one of its two consumers
			served[kind] |= shards
		}
	}
	if err := consumers.Err(); err != nil {
		return floors{}, fmt.Errorf("list consumers of stream %s: %w", stream.Name, err)
	}
	f.spare = f.acked
	unserved, err := s.unservedSubjects(ctx, served)
	if err != nil {
		return floors{}, err
	}
	for _, subject := range unserved {
		first, err := s.stream.GetMsg(ctx, s.state.info.State.FirstSeq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return floors{}, fmt.Errorf("find the first message on %s: %w", subject, err)
		}
		f.spare = min(f.spare, first.Sequence-1)
	}
	return f, nil
}

// consumerFloor returns the sequence up to which a consumer has acknowledged its messages, at most last.
func consumerFloor(c *jetstream.ConsumerInfo, last uint64) uint64 {
	switch {
	case c.NumAckPending > 0:
		return c.AckFloor.Stream
	case c.NumPending > 0:
		return max(c.AckFloor.Stream, c.Delivered.Stream)
	}
	return last
}

// isBuiltIn reports whether no pool of workers serves a kind: a service finishes its tasks from the database.
func isBuiltIn(kind ledger.Kind) bool { return strings.HasPrefix(string(kind), "taskledger.") }

// unservedSubjects returns the work subjects on the stream of kinds and shards without a consumer, except built-in
// kinds.
func (s *session) unservedSubjects(ctx context.Context, served map[ledger.Kind]ledger.ShardSet) ([]string, error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(stream.AllSubjects))
	if err != nil {
		return nil, fmt.Errorf("list subjects of stream %s: %w", stream.Name, err)
	}
	unserved := make(map[ledger.Kind]ledger.ShardSet)
	for subject := range info.State.Subjects {
		shard, t, kind, err := stream.ParseSubject(subject)
		switch {
		case err != nil || !t.WakesWorkers() || served[kind].Has(shard) || isBuiltIn(kind):
		case served[kind] == 0:
			unserved[kind] = ledger.AllShards // which takes one filter
		default:
			unserved[kind] |= ledger.ShardRange(shard, shard)
		}
	}
	var subjects []string
	for kind, shards := range unserved {
		subjects = append(subjects, stream.WorkSubjects(kind, shards)...)
	}
	return subjects, nil
}
