package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
)

//go:embed sql/published.sql
var publishedSQL string

// loss is the error of a stream that lacks messages which it had acknowledged, and which neither their age
// nor a purge removed. It is not a failure: the relay publishes them again.
type loss struct {
	reason string
	first  uint64 // first sequence that may be missing, 0 for all
}

func (l *loss) Error() string { return "stream " + stream.Name + " has lost messages: " + l.reason }

// verify compares the stream with the mark at the beginning of a session, and repairs a loss.
func (s *session) verify(ctx context.Context) error {
	lost := s.relay.pendingLoss
	s.adoptCleared()
	if lost == nil {
		err := s.diagnose(ctx)
		if err != nil && !errors.As(err, &lost) {
			return err
		}
	}
	if lost == nil {
		return s.inspectTail(ctx, s.mark.Accounted)
	}
	if err := s.repair(ctx, lost); err != nil {
		return err
	}
	s.relay.pendingLoss = nil
	return nil
}

// adoptCleared accounts for the messages that this session, or the one before it, was clearing. A loss at the same time
// goes unnoticed here; the reconciler finds its tasks.
func (s *session) adoptCleared() {
	m, state := &s.mark, s.state.info.State
	if m.IsClearing && m.Created == createdAt(s.state.info) {
		m.Deleted = state.NumDeleted
		m.First = max(m.First, min(state.FirstSeq, m.Cleared+1))
		s.first = max(s.first, m.First)
	}
	m.IsClearing = false
}

// check reads the state of the stream between pages. It returns a [*loss] if messages are missing.
func (s *session) check(ctx context.Context) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	if err := s.diagnose(ctx); err != nil {
		return err
	}
	return s.inspectTail(ctx, s.mark.Seq)
}

// inspectTail inspects the messages behind one. This session does not publish them again. Those up to the mark were
// inspected by an earlier session, and are read apart: however many they are, the last ones are read, too.
func (s *session) inspectTail(ctx context.Context, behind uint64) error {
	first, last := s.state.info.State.FirstSeq, s.state.info.State.LastSeq
	if last <= behind {
		return nil
	}
	known := max(s.mark.Seq, behind)
	found, err := s.inspector.reread(ctx, gap{behind + 1, known}, first)
	if err != nil {
		return err
	}
	unknown, err := s.inspector.inspect(ctx, gap{known + 1, last}, first)
	if err != nil {
		return err
	}
	id, err := s.eventAt(ctx, last)
	if err != nil {
		return err
	}
	s.mark.Seq, s.mark.LastEvent = last, id
	found = append(found, unknown...)
	if s.isReplicated() { // then the stream drops those with ids
		found = slices.DeleteFunc(found, func(m storedMessage) bool { return m.hasID })
	}
	s.addStored(found)
	return s.dropPassed(ctx)
}

// diagnose returns a [*loss] if messages are missing in the state that was read last.
func (s *session) diagnose(ctx context.Context) error {
	m, state := &s.mark, s.state.info.State
	switch {
	case createdAt(s.state.info) != m.Created:
		return &loss{reason: "it was created anew at " + createdAt(s.state.info)}
	case state.LastSeq < m.Seq:
		return &loss{reason: fmt.Sprintf("it ends at %d, not at %d", state.LastSeq, m.Seq), first: state.LastSeq + 1}
	case state.NumDeleted > m.Deleted || lostMessages(s.state.info) > m.Lost:
		return s.diagnoseHoles(ctx)
	}
	// The numbers decrease when the holes reach the maximum age.
	m.Deleted, m.Lost = state.NumDeleted, lostMessages(s.state.info)
	if err := s.diagnoseFront(ctx); err != nil {
		return err
	}
	return s.diagnoseBack(ctx)
}

// maxHoles is the greatest number of holes whose sequences the relay asks the server for.
const maxHoles = 10_000

// diagnoseHoles returns the [*loss] of messages in the middle.
func (s *session) diagnoseHoles(ctx context.Context) error {
	state := s.state.info.State
	lost := &loss{
		reason: fmt.Sprintf("%d messages are missing in the middle", max(state.NumDeleted, lostMessages(s.state.info))),
		first:  max(s.mark.First, s.first),
	}
	if state.NumDeleted > maxHoles {
		return lost
	}
	info, err := s.stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("read the state of stream %s: %w", stream.Name, err)
	}
	missing := info.State.Deleted
	if info.State.Lost != nil {
		missing = append(missing, info.State.Lost.Msgs...)
	}
	if len(missing) > 0 {
		lost.first = slices.Min(missing)
	}
	return lost
}

// diagnoseFront returns a [*loss] if the first messages were removed before they reached their maximum age.
// The cursor rows hold when a sequence was new.
func (s *session) diagnoseFront(ctx context.Context) error {
	first := s.state.info.State.FirstSeq
	if first <= max(s.mark.First, s.first, 1) {
		return nil
	}
	var ms int64
	err := s.relay.config.DB.QueryRow(ctx, publishedSQL, s.mark.Created, int64(first-1)).Scan(&ms)
	if err != nil {
		return pgerr.Explain("read when a message was published", err)
	}
	maxAge := s.state.info.Config.MaxAge
	if age := time.Duration(ms) * time.Millisecond; maxAge == 0 || age < maxAge-ageTolerance(maxAge) {
		reason := fmt.Sprintf("it begins at %d, and the message before is only %s old", first, age)
		return &loss{reason: reason, first: max(s.mark.First, s.first)}
	}
	s.first = first
	return nil
}

// ageTolerance returns how much older than its cursor row a message may be: old rows are thinned to one a
// minute, and a page takes a while to publish.
func ageTolerance(maxAge time.Duration) time.Duration { return min(2*time.Minute, maxAge/4) }

// diagnoseBack returns a [*loss] if the message at the last known sequence is another one than was
// acknowledged: the stream lost its end and has grown again.
func (s *session) diagnoseBack(ctx context.Context) error {
	if s.mark.LastEvent == "" {
		return nil
	}
	id, err := s.eventAt(ctx, s.mark.Seq)
	if err != nil {
		return err
	}
	if id != "" && id != s.mark.LastEvent {
		return &loss{reason: fmt.Sprintf("message %d is of event %q, not %q", s.mark.Seq, id, s.mark.LastEvent)}
	}
	return nil
}

// eventAt returns the ce-id of the message at a sequence, "" if there is no message.
func (s *session) eventAt(ctx context.Context, seq uint64) (string, error) {
	if seq == 0 {
		return "", nil
	}
	msg, err := s.stream.GetMsg(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read message %d: %w", seq, err)
	}
	return stream.IDOf(msg.Header), nil
}

// checkDuplicates returns a [*loss] if the stream dropped duplicates of messages that it does not hold any
// more: it remembers message ids longer than purged messages.
func (s *session) checkDuplicates(ctx context.Context, oldest, newest uint64) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	state := s.state.info.State
	if newest > state.LastSeq || oldest < state.FirstSeq && oldest >= s.mark.Purged {
		reason := fmt.Sprintf("it dropped duplicates of %d to %d and holds %d to %d",
			oldest, newest, state.FirstSeq, state.LastSeq)
		return &loss{reason: reason, first: oldest}
	}
	return nil
}
