package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// send publishes messages in order and returns when all are on the stream, parked or discarded. After an error, any of
// them may be on the stream; the next session finds them there.
func (s *session) send(ctx context.Context, messages []message) error {
	messages, err := s.withoutDiscarded(ctx, messages)
	if err != nil {
		return err
	}
	if messages, err = s.withoutSkipped(ctx, messages); err != nil {
		return err
	}
	messages = s.withoutStored(ctx, messages)
	for len(messages) > 0 {
		n, err := s.countFitting(ctx, messages)
		if err != nil {
			return err
		}
		if n == 0 {
			m := messages[0]
			limit := s.state.limit()
			reason := fmt.Sprintf("the message has %d bytes, more than the stream may hold (%d)", m.size, limit)
			if err := s.park(ctx, *m.event, reason); err != nil {
				return err
			}
			messages = messages[1:]
			continue
		}
		for _, wave := range s.waves(messages[:n]) {
			if err := s.sendFitting(ctx, wave); err != nil {
				return err
			}
		}
		for _, m := range messages[:n] {
			stream.Recycle(m.msg)
		}
		messages = messages[n:]
	}
	return nil
}

// waves divides messages into parts that are published one after the other. A replicated stream whose leader changes
// may drop a message and store a later one. So each part has at most one event of a task: the next event of a task is
// sent when the one before is acknowledged. One server stores messages in the order in which it receives them.
func (s *session) waves(messages []message) [][]message {
	if !s.isReplicated() {
		return [][]message{messages}
	}
	return divide(messages)
}

func (s *session) isReplicated() bool { return s.state.info.Config.Replicas >= 2 }

// divide puts the n-th event of each task into part n, in the order of the messages.
func divide(messages []message) (parts [][]message) {
	events := make(map[ledger.Key]int, len(messages))
	for _, m := range messages {
		n := events[m.event.Key]
		events[m.event.Key]++
		if n == len(parts) {
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], m)
	}
	return parts
}

// noteAfter is how long a page may wait for acknowledgements until the lease has a note.
const noteAfter = time.Second

// errNoAck has the text of the error after AckTimeout, so that the note keeps its time.
var errNoAck = fmt.Errorf("publish: %w", stream.ErrNoAck)

// errTooManyMessages is the reason of a relay that cannot publish: nothing makes room for messages by their number.
var errTooManyMessages = fmt.Errorf("the stream has a limit of messages, and has reached it: "+
	"nats stream edit %s --max-msgs=-1", stream.Name)

// withRefusal adds to the error of messages without acknowledgements that the server refuses the relay's user, if it
// does: the server drops such messages.
func (s *session) withRefusal(err error) error {
	last := s.relay.config.NATS.LastError()
	if !errors.Is(err, stream.ErrNoAck) || !errors.Is(last, nats.ErrPermissionViolation) {
		return err
	}
	return &refusedUserError{err: last}
}

// refusedUserError is the error of a relay whose user in NATS has not its rights.
type refusedUserError struct{ err error }

func (e *refusedUserError) Error() string {
	return fmt.Sprintf("%v: connect with the key of the user relay of taskledger nats-config", e.err)
}

func (e *refusedUserError) Unwrap() error { return e.err }

// sendFitting publishes messages that fit into the stream.
func (s *session) sendFitting(ctx context.Context, messages []message) error {
	if err := s.relay.lease.confirm(ctx); err != nil {
		return err
	}
	fault.Point(FaultSend)
	slow := time.AfterFunc(noteAfter, func() { s.relay.lease.setError(s.withRefusal(errNoAck)) })
	defer slow.Stop()
	// The page is finished also when ctx ends; AckTimeout bounds it.
	sentAt := time.Now()
	messages, results, err := s.publishFitting(context.WithoutCancel(ctx), messages)
	if err != nil {
		return err
	}
	sum, err := s.sumUp(messages, results)
	if len(s.relay.hooks) > 0 {
		g := Group{
			SentAt: sentAt, Messages: len(messages), Duplicates: sum.duplicates, Err: cmp.Or(err, sum.failure),
			messages: messages,
		}
		s.relay.hooks.each(func(h Hook) { h.MessagesSent(ctx, g) })
	}
	if sum.stored > 0 {
		s.relay.hooks.each(func(h Hook) { h.MessagesPublished(ctx, sum.stored) })
	}
	if sum.duplicates > 0 {
		s.relay.hooks.each(func(h Hook) { h.DuplicatesDropped(ctx, sum.duplicates) })
	}
	if err != nil {
		return err
	}
	for _, gap := range sum.gaps {
		if _, err := s.inspector.inspect(ctx, gap, s.state.info.State.FirstSeq); err != nil {
			return err
		}
	}
	for _, r := range sum.rejects {
		if err := s.park(ctx, r.event, r.reason); err != nil {
			return err
		}
	}
	if refused := (*stream.RefusedError)(nil); errors.As(sum.failure, &refused) && refused.Full() {
		if refused.TooManyMessages() {
			return s.waitForRoom(ctx, errTooManyMessages, purgeEvery)
		}
		return s.waitForRoom(ctx, refused, purgeEvery)
	}
	if sum.failure != nil {
		return s.withRefusal(fmt.Errorf("publish: %w", sum.failure))
	}
	if sum.duplicates > 0 {
		return s.checkDuplicates(ctx, sum.oldest, sum.newest)
	}
	return nil
}

// publishFitting publishes messages and returns them with their results. If the stream refuses some, and it is not
// known which, it finds out which ones the stream has, and publishes and returns the others. Messages that the stream
// has are published again only behind those of their tasks that it has refused at first.
func (s *session) publishFitting(ctx context.Context, messages []message) ([]message, []stream.Result, error) {
	timeout := s.relay.config.AckTimeout
	if s.isReplicated() {
		return messages, s.publisher.Publish(ctx, msgsOf(messages), timeout), nil
	}
	if results, ok := s.publisher.PublishInOrder(ctx, msgsOf(messages), timeout); ok {
		return messages, results, nil
	}
	s.stored.sent(messages, s.mark.Seq)
	if err := s.check(ctx); err != nil {
		return nil, nil, err
	}
	missing, found := s.stored.split(messages)
	results := s.publisher.Publish(ctx, msgsOf(missing), timeout)
	for i, r := range results {
		if r.Err == nil {
			s.stored.overtake(missing[i])
		}
	}
	again := slices.DeleteFunc(slices.Clone(found), s.stored.take)
	s.relay.hooks.each(func(h Hook) { h.MessagesPublished(ctx, len(found)-len(again)) })
	results = append(results, s.publisher.Publish(ctx, msgsOf(again), timeout)...)
	return append(missing, again...), results, nil
}

func msgsOf(messages []message) []*nats.Msg {
	msgs := make([]*nats.Msg, len(messages))
	for i := range messages {
		msgs[i] = messages[i].msg
	}
	return msgs
}

// pageResult is the result of publishing a page.
type pageResult struct {
	stored, duplicates int
	oldest, newest     uint64 // sequences of duplicates
	gaps               []gap  // between the sequences that were stored: foreign messages, or earlier ones of ours
	rejects            []reject
	failure            error // the first one that is not about a single message
}

// fail adds an error. It is separate from sumUp because its variable escapes to the heap.
func (sum *pageResult) fail(e ledger.Event, err error) {
	var refused *stream.RefusedError
	switch {
	case errors.As(err, &refused) && refused.ForMessage():
		sum.rejects = append(sum.rejects, reject{event: e, reason: refused.Error()})
	case sum.failure == nil:
		sum.failure = err
	}
}

// sumUp sums up the results of a page and moves the mark over the stored messages. It returns a [*loss] if
// the stream assigned a sequence twice.
func (s *session) sumUp(messages []message, results []stream.Result) (pageResult, error) {
	var sum pageResult
	var last *nats.Msg // that was stored
	defer func() {
		if last != nil {
			s.mark.LastEvent = stream.IDOf(last.Header)
		}
	}()
	for i, r := range results {
		switch {
		case r.Err != nil:
			sum.fail(*messages[i].event, r.Err)
		case r.Duplicate:
			if sum.duplicates == 0 || r.Seq < sum.oldest {
				sum.oldest = r.Seq
			}
			sum.newest = max(sum.newest, r.Seq)
			sum.duplicates++
		case r.Seq <= s.mark.Seq:
			return sum, &loss{reason: fmt.Sprintf("it assigned sequence %d twice", r.Seq), first: r.Seq}
		default:
			if r.Seq > s.mark.Seq+1 {
				sum.gaps = append(sum.gaps, gap{s.mark.Seq + 1, r.Seq - 1})
			}
			s.mark.Seq, last = r.Seq, messages[i].msg
			s.state.bytes += messages[i].size
			sum.stored++
		}
	}
	return sum, nil
}
