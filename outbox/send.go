package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// publish publishes messages and returns when all are on the stream or parked. After an error, any of them may be on
// the stream; the next session finds them in the tail.
func (s *session) publish(ctx context.Context, messages []message) error {
	messages, err := s.publishable(ctx, messages)
	if err != nil {
		return err
	}
	for _, wave := range waves(messages) {
		if err := s.send(ctx, wave); err != nil {
			return err
		}
	}
	for _, m := range messages {
		stream.Recycle(m.msg)
	}
	return nil
}

// publishable returns the messages without the messages of the tail, and parks messages that are too large.
func (s *session) publishable(ctx context.Context, messages []message) ([]message, error) {
	limit := s.limits(uint64(len(messages)))
	rest := messages[:0]
	found := 0
	for _, m := range messages {
		if !s.tail.isEmpty() && s.tail.take(m.msg) {
			found++
			continue
		}
		if reason := limit.excess(m); reason != "" {
			if err := s.park(ctx, *m.event, reason); err != nil {
				return nil, err
			}
			continue
		}
		rest = append(rest, m)
	}
	if found > 0 {
		s.relay.hooks.each(func(h Hook) { h.DuplicatesDropped(ctx, found) })
	}
	return rest, nil
}

// limits are the largest messages that the server and the stream take.
type limits struct {
	added           int64 // bytes that [stream.Expect] adds
	payload, stored int64
}

// limits returns the limits of the next n messages. A refused message takes no sequence, so the server refuses all
// messages after it: messages that are too large are parked before.
func (s *session) limits(n uint64) limits {
	l := limits{payload: s.relay.config.NATS.MaxPayload(), stored: math.MaxInt64}
	if most := int64(s.info.Config.MaxMsgSize); most > 0 {
		l.payload = min(l.payload, most)
	}
	if most := s.info.Config.MaxBytes; most > 0 {
		l.stored = most
	}
	l.added = stream.ExpectSize(s.last + n)
	return l
}

// excess returns why a message is too large, "" if it is not.
func (l limits) excess(m message) string {
	if n := stream.PayloadSize(m.msg, m.size+l.added); n > l.payload {
		return fmt.Sprintf("the message has %d bytes, more than the server takes (max_payload or max_msg_size: %d)", n,
			l.payload)
	}
	if n := m.size + l.added; n > l.stored {
		return fmt.Sprintf("the message has %d bytes, more than the stream may hold (%d)", n, l.stored)
	}
	return ""
}

// noteAfter is how long a page may wait for acknowledgements before the lease gets a note.
const noteAfter = time.Second

// errNoAck uses the text of the error after AckTimeout, so that the note keeps its time.
var errNoAck = fmt.Errorf("publish: %w", stream.ErrNoAck)

// send publishes messages of different tasks behind the last known one. It returns errAgain if the stream ends
// elsewhere, or if it refuses a message because of the message itself, which is then parked.
func (s *session) send(ctx context.Context, messages []message) error {
	slow := time.AfterFunc(noteAfter, func() { s.relay.lease.setError(s.withRefusal(errNoAck)) })
	defer slow.Stop()
	msgs := expecting(messages, s.last)
	sentAt := time.Now()
	// The page is finished even if ctx ends; AckTimeout bounds it.
	results, isKnown := s.publishTo(context.WithoutCancel(ctx), msgs)
	var failure error
	stored := 0
	for i, r := range results {
		var refused *stream.RefusedError
		switch {
		case r.Err == nil:
			stored++
		case errors.As(r.Err, &refused) && refused.ForMessage():
			if err := s.park(ctx, *messages[i].event, refused.Error()); err != nil {
				return err
			}
		case failure == nil && !(errors.As(r.Err, &refused) && refused.WrongSequence()):
			failure = s.withRefusal(fmt.Errorf("publish: %w", r.Err))
		}
	}
	s.relay.hooks.each(func(h Hook) {
		h.MessagesSent(ctx, Group{SentAt: sentAt, Messages: len(messages), Err: failure, messages: messages})
	})
	if stored > 0 {
		s.relay.hooks.each(func(h Hook) { h.MessagesPublished(ctx, stored) })
	}
	switch {
	case failure != nil:
		return failure
	case !isKnown, stored < len(messages):
		return errAgain
	}
	s.last += uint64(stored)
	s.relay.mustNumber = false
	return nil
}

// publishTo publishes messages. It returns false, without results, if the stream has refused some messages and it is
// unknown which: the next session then publishes with a reply subject for each message.
func (s *session) publishTo(ctx context.Context, msgs []*nats.Msg) ([]stream.Result, bool) {
	timeout := s.relay.config.AckTimeout
	if s.relay.mustNumber || s.info.Config.Replicas > 1 {
		return s.publisher.Publish(ctx, msgs, timeout), true
	}
	results, ok := s.publisher.PublishInOrder(ctx, msgs, timeout)
	s.relay.mustNumber = !ok
	return results, ok
}

// withRefusal explains the error of messages without acknowledgements: it adds that the server refuses the relay's
// user, if it does. The server drops such messages.
func (s *session) withRefusal(err error) error {
	last := s.relay.config.NATS.LastError()
	if !errors.Is(err, stream.ErrNoAck) || !errors.Is(last, nats.ErrPermissionViolation) {
		return err
	}
	return &refusedUserError{err: last}
}

// refusedUserError is the error of a relay whose NATS user lacks its rights.
type refusedUserError struct{ err error }

func (e *refusedUserError) Error() string {
	return fmt.Sprintf("%v: connect with the key of the user relay of taskledger nats-config", e.err)
}

func (e *refusedUserError) Unwrap() error { return e.err }
