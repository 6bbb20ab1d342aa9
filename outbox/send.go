package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// send publishes messages in order and returns when all are on the stream or parked. On an
// error any of them may be there or not; sending them again is harmless.
func (s *session) send(ctx context.Context, messages []message) error {
	for len(messages) > 0 {
		n, err := s.room(ctx, messages)
		if err != nil {
			return err
		}
		if n == 0 { // larger than the whole stream may be
			reason := fmt.Sprintf("the message takes %d bytes, the stream may hold %d", messages[0].size, s.limit())
			if err := s.park(ctx, messages[0].event, reason); err != nil {
				return err
			}
			messages = messages[1:]
			continue
		}
		if err := s.sendPage(ctx, messages[:n]); err != nil {
			return err
		}
		for _, m := range messages[:n] {
			stream.Recycle(m.msg)
		}
		messages = messages[n:]
	}
	return nil
}

// sendPage publishes messages for which there is room.
func (s *session) sendPage(ctx context.Context, messages []message) error {
	msgs := make([]*nats.Msg, len(messages))
	for i := range messages {
		msgs[i] = messages[i].msg
	}
	// What is under way is finished, also when the relay is told to stop; the time-out bounds it.
	results := s.publisher.Publish(context.WithoutCancel(ctx), msgs, s.relay.config.AckTimeout)
	t, err := s.tally(messages, results)
	if t.stored > 0 {
		s.relay.hooks.each(func(h Hook) { h.MessagesPublished(ctx, t.stored) })
	}
	if t.duplicates > 0 {
		s.relay.hooks.each(func(h Hook) { h.DuplicatesDropped(ctx, t.duplicates) })
	}
	if err != nil {
		return err
	}
	for _, gap := range t.gaps {
		if err := s.inspect(ctx, gap); err != nil {
			return err
		}
	}
	for _, p := range t.refused {
		if err := s.park(ctx, p.event, p.reason); err != nil {
			return err
		}
	}
	if refused := (*stream.RefusedError)(nil); errors.As(t.failed, &refused) && refused.Full() {
		return s.waitForRoom(ctx, refused)
	}
	if t.failed != nil {
		return fmt.Errorf("publish: %w", t.failed)
	}
	if t.duplicates > 0 {
		return s.checkDuplicates(ctx, t.oldest, t.newest)
	}
	return nil
}

// tally is what became of a page.
type tally struct {
	stored, duplicates int
	oldest, newest     uint64 // sequences of duplicates
	gaps               []gap  // in the sequences of what was stored: somebody else's messages, or our own from before
	refused            []unfit
	failed             error // the first that says something about the stream
}

// tally counts answers and moves the mark over what was stored. It returns a [*loss] if the
// stream gives out sequences that it gave out before.
func (s *session) tally(messages []message, results []stream.Result) (tally, error) {
	var t tally
	for i, r := range results {
		var refused *stream.RefusedError
		switch {
		case errors.As(r.Err, &refused) && refused.ForMessage():
			t.refused = append(t.refused, unfit{event: messages[i].event, reason: refused.Error()})
		case r.Err != nil:
			if t.failed == nil {
				t.failed = r.Err
			}
		case r.Duplicate:
			if t.duplicates == 0 || r.Seq < t.oldest {
				t.oldest = r.Seq
			}
			t.newest = max(t.newest, r.Seq)
			t.duplicates++
		case r.Seq <= s.mark.Seq:
			return t, &loss{reason: fmt.Sprintf("sequence %d was given out twice", r.Seq), first: r.Seq}
		default:
			if r.Seq > s.mark.Seq+1 {
				t.gaps = append(t.gaps, gap{s.mark.Seq + 1, r.Seq - 1})
			}
			s.mark.Seq, s.mark.LastID = r.Seq, messages[i].msg.Header.Get(nats.MsgIdHdr)
			s.bytes += messages[i].size
			t.stored++
		}
	}
	return t, nil
}
