package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
)

// errFull is the error of a message that does not fit. Workers must acknowledge messages before the relay can
// publish more.
var errFull = errors.New("the stream is full of messages that wait for workers")

const (
	// purgeEvery is the least time between two checks of a nearly full stream, and between two purges unless they
	// are quick: they take at most one part in purgeShare of the time.
	purgeEvery    = time.Second
	minPurgeEvery = 100 * time.Millisecond
	purgeShare    = 20
	// nearlyFullPercent of the limit is where the relay begins to purge.
	nearlyFullPercent = 80
	// clearStep is how many messages one purge removes that are not the oldest ones. A message takes the server
	// about 2 µs, in which it stores nothing.
	clearStep = 100_000
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

// unassessed returns how many bytes may be published, beside the given ones on the stream, until the demand is read:
// half of what is free at most, so that kinds which are not withheld yet never fill the stream.
func (s *streamState) unassessed(bytes int64) int64 {
	free := max(s.limit()/100*nearlyFullPercent-bytes, 0)
	return min(s.limit()/growthShare, free/2)
}

// messageSize returns the average size of a message on the stream, and the usual size if it is empty.
func (s *streamState) messageSize() int64 {
	const usual = 500
	if s.info.State.Msgs == 0 {
		return usual
	}
	return int64(s.info.State.Bytes/s.info.State.Msgs) + 1
}

// overflows reports whether a message fits into the stream, but not now.
func (s *streamState) overflows(size int64) bool {
	return s.limit() > 0 && size <= s.limit() && s.bytes+size > s.limit()
}

// isNearlyFull reports whether a number of bytes exceeds nearlyFullPercent of a limit; a limit below 1 is no limit.
func isNearlyFull(bytes, limit int64) bool {
	return limit > 0 && bytes > limit/100*nearlyFullPercent
}

// countFitting returns how many of the messages to publish now: a whole page, or 0 if the first message
// exceeds the stream's limit. A part of a page would let smaller messages overtake those that a full stream
// refuses. Only a page that takes a quarter of the stream goes in parts, and one for which this session could not make
// enough room: what waits for workers and cannot be removed may take more than three quarters.
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
	if has, err := s.hasRoom(ctx, messages); has || err != nil {
		return len(messages), err
	}
	fits := 0
	for after := s.state.bytes; fits < len(messages); fits++ {
		if after += messages[fits].size; after > s.state.limit() {
			break
		}
	}
	if fits == 0 || fits < len(messages) && total < s.state.limit()/4 && !s.hasMadeRoom {
		return 0, s.waitForRoom(ctx, errFull, max(s.relay.purgePause, minPurgeEvery))
	}
	return fits, nil
}

// hasRoom reports whether the stream is not nearly full with more messages. It ends the session if the next one may
// make room.
func (s *session) hasRoom(ctx context.Context, messages []message) (bool, error) {
	var total int64
	for i := range messages {
		total += messages[i].size
	}
	if s.state.isNearlyFull(total) && time.Since(s.state.readAt) > s.relay.purgePause {
		if err := s.check(ctx); err != nil {
			return false, err
		}
	}
	if s.state.isNearlyFull(total) && s.canPurge() {
		s.relay.wantsRoom = total
		return false, errAgain
	}
	return !s.state.isNearlyFull(total), nil
}

// canPurge reports whether the next session may make room. One that has made room publishes something first, however
// long it takes to come so far.
func (s *session) canPurge() bool {
	return !s.hasMadeRoom && time.Since(s.relay.purgedAt) > s.relay.purgePause
}

// waitForRoom waits and ends the session.
func (s *session) waitForRoom(ctx context.Context, why error, pause time.Duration) error {
	s.relay.lease.setNote(why.Error())
	s.relay.hooks.each(func(h Hook) { h.RelayFailed(ctx, why) })
	if err := loop.Sleep(ctx, pause); err != nil {
		return err
	}
	return errAgain
}

// room is the part of a session that makes room in the stream.
type room struct{ *session }

// makeRoom removes messages from a nearly full stream, those that are needed least first: what every durable consumer
// has acknowledged, then whatever waits for no worker. Kinds with too many waiting messages are withheld from now on.
func (s room) makeRoom(ctx context.Context) error {
	r := s.relay
	wanted := r.wantsRoom
	if !s.state.isNearlyFull(wanted) && len(r.finished.kinds) == 0 {
		return nil
	}
	d, removed, err := s.makeRoomOfFinished(ctx)
	if err != nil {
		return err
	}
	if r.wantsRoom = 0; !s.state.isNearlyFull(wanted) {
		return nil
	}
	r.purgedAt, r.purgePause, s.hasMadeRoom = time.Now(), purgeEvery, true
	backlog(s).withholdLargest(ctx, d)
	more, err := s.purge(ctx, d)
	if err != nil {
		return err
	}
	removed += more
	if more, err = s.clear(ctx, d, wanted); err != nil {
		return err
	}
	removed += more
	if s.state.isNearlyFull(wanted) {
		backlog(s).correct(d)
		backlog(s).withholdLargest(ctx, d)
	}
	if removed == 0 {
		r.limited.Warn(r.config.Logger, "stream is nearly full of messages that wait for workers",
			"bytes", s.state.bytes, "limit", s.state.limit())
		return nil
	}
	r.purgePause = min(max(purgeShare*time.Since(r.purgedAt), minPurgeEvery), purgeEvery)
	r.hooks.each(func(h Hook) { h.StreamPurged(ctx, s.mark.Purged) })
	r.limited.Info(r.config.Logger, "stream was nearly full; removed messages that no worker needs",
		"messages", removed, "bytes", s.state.bytes, "limit", s.state.limit())
	return nil
}

// makeRoomOfFinished removes the messages of finished kinds. It returns their number, and the demand without them.
func (s room) makeRoomOfFinished(ctx context.Context) (d *demand, removed uint64, err error) {
	r := s.relay
	if d, err = backlog(s).readDemand(ctx, nil); err != nil {
		return nil, 0, err
	}
	s.forgetMissed(d)
	f := r.finished
	if r.finished = (finishedKinds{}); len(f.kinds) == 0 {
		if f, err = backlog(s).findFinished(ctx, d); err != nil {
			return nil, 0, err
		}
	}
	if removed, err = s.clearFinished(ctx, d, f); err != nil || removed == 0 {
		return d, 0, err
	}
	r.hooks.each(func(h Hook) { h.StreamPurged(ctx, s.mark.Purged) })
	r.limited.Info(r.config.Logger, "removed messages of kinds none of whose tasks waits",
		"kinds", len(f.kinds), "messages", removed)
	d, err = backlog(s).readDemand(ctx, nil)
	return d, removed, err
}

// purge removes the oldest messages, up to the first one that a durable consumer needs. It returns their number.
func (s room) purge(ctx context.Context, d *demand) (uint64, error) {
	first := s.state.info.State.FirstSeq
	upTo, err := d.purgeable(ctx, s.stream, first)
	if err != nil || upTo < first {
		return 0, err
	}
	return s.remove(ctx, upTo)
}

// clear removes older messages that do not wait for workers, although subscribers may not have received them, and
// leaves those that wait. It makes room for so many bytes and spares as many of the newest messages as it can. It
// returns the number of removed messages.
//
// It removes messages in flight at workers only if the others make too little room: the message of a killed worker is
// redelivered if it is still there; otherwise the reconciler must find the task.
func (s room) clear(ctx context.Context, d *demand, wanted int64) (removed uint64, err error) {
	removed, err = s.clearRound(ctx, d, wanted, true)
	if err == nil && s.mark.Cleared == 0 && s.state.isNearlyFull(wanted) {
		var more uint64
		more, err = s.clearRound(ctx, d, wanted, false)
		removed += more
	}
	return removed, err
}

// clearRound clears from mark.Cleared on, until there is room, a step is done or the round is: mark.Cleared is then 0.
func (s room) clearRound(ctx context.Context, d *demand, wanted int64, keepsInFlight bool) (removed uint64, err error) {
	first := s.mark.Cleared
	for s.state.isNearlyFull(wanted) && s.mark.Cleared < min(s.state.info.State.LastSeq, first+clearStep) {
		n, err := s.clearUpTo(ctx, d, s.nextToClear(d), keepsInFlight)
		if err != nil {
			return removed, err
		}
		removed += n
	}
	if s.mark.Cleared >= s.state.info.State.LastSeq {
		s.mark.Cleared = 0 // begin again: more was acknowledged meanwhile
	}
	return removed, nil
}

// nextToClear returns the sequence up to which to clear next: what no durable subscriber misses first, then the older
// half of the messages, then all but the newest eighth, then all.
func (s room) nextToClear(d *demand) uint64 {
	state := s.state.info.State
	upTo := state.LastSeq
	last := state.LastSeq
	for _, sequence := range []uint64{d.subscribed(last), last - state.Msgs/2, last - state.Msgs/8} {
		if sequence > s.mark.Cleared {
			upTo = sequence
			break
		}
	}
	return min(upTo, max(s.mark.Cleared, state.FirstSeq)+clearStep)
}

// clearUpTo clears the messages up to a sequence.
func (s room) clearUpTo(ctx context.Context, d *demand, upTo uint64, keepsInFlight bool) (uint64, error) {
	return s.removeMatching(ctx, d, upTo, d.clearable(upTo, keepsInFlight))
}

// removeMatching removes the messages that match filters, each up to a sequence that is at most upTo, and returns their
// number. A mark before it and one after it make the holes known.
func (s room) removeMatching(
	ctx context.Context, d *demand, upTo uint64, filters map[string]uint64,
) (removed uint64, err error) {
	if err := s.noteMissed(ctx, d, upTo); err != nil {
		return 0, err
	}
	before := s.state.info.State.Msgs
	s.mark.Cleared, s.mark.IsClearing = upTo, true
	if err := s.writeMark(ctx); err != nil {
		return 0, err
	}
	for subject, sequence := range filters {
		err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(sequence+1))
		if err != nil {
			return 0, fmt.Errorf("purge %s of stream %s up to %d: %w", subject, stream.Name, sequence, err)
		}
	}
	if err := s.refresh(ctx); err != nil {
		return 0, err
	}
	s.adoptCleared()
	return before - min(before, s.state.info.State.Msgs), s.writeMark(ctx)
}

// remove removes all messages up to a sequence and returns their number. It writes the mark first, so that the next
// check does not take this for a loss.
func (s room) remove(ctx context.Context, upTo uint64) (uint64, error) {
	before := s.state.info.State.Msgs
	s.mark.Purged = max(s.mark.Purged, upTo+1)
	s.mark.First = max(s.mark.First, s.mark.Purged)
	if err := s.writeMark(ctx); err != nil {
		return 0, err
	}
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSequence(upTo+1)); err != nil {
		return 0, fmt.Errorf("purge stream %s up to %d: %w", stream.Name, upTo, err)
	}
	if err := s.refresh(ctx); err != nil {
		return 0, err
	}
	return before - min(before, s.state.info.State.Msgs), nil
}
