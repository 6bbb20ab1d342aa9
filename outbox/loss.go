package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
)

var (
	//go:embed sql/covered.sql
	coveredSQL string
	//go:embed sql/published.sql
	publishedSQL string
)

// loss says that the stream lacks messages which it had acknowledged and which nobody was
// entitled to remove. It is not a failure: the relay publishes them again.
type loss struct {
	reason string
	first  uint64 // first sequence that may be missing, 0 for all
}

func (l *loss) Error() string { return "stream " + stream.Name + " has lost messages: " + l.reason }

// verify compares the stream with the mark when a session begins, and makes up for a loss.
func (s *session) verify(ctx context.Context) error {
	found := s.relay.suspicion
	if found == nil {
		err := s.diagnose(ctx)
		if err != nil && !errors.As(err, &found) {
			return err
		}
	}
	if found == nil {
		return s.catchUp(ctx)
	}
	if err := s.recover(ctx, found); err != nil {
		return err
	}
	s.relay.suspicion = nil
	return nil
}

// check looks at the stream between pages. It returns a [*loss] if it lacks something.
func (s *session) check(ctx context.Context) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	if err := s.diagnose(ctx); err != nil {
		return err
	}
	return s.catchUp(ctx)
}

// catchUp inspects what stands on the stream behind the last message known.
func (s *session) catchUp(ctx context.Context) error {
	last := s.info.State.LastSeq
	if last <= s.mark.Seq {
		return nil
	}
	if err := s.inspect(ctx, gap{s.mark.Seq + 1, last}); err != nil {
		return err
	}
	id, err := s.idAt(ctx, last)
	if err != nil {
		return err
	}
	s.mark.Seq, s.mark.LastID = last, id
	return nil
}

// diagnose returns a [*loss] if the last look at the stream shows that messages are gone.
func (s *session) diagnose(ctx context.Context) error {
	m, state := &s.mark, s.info.State
	switch {
	case createdAt(s.info) != m.Created:
		return &loss{reason: "it was made anew at " + createdAt(s.info)}
	case state.LastSeq < m.Seq:
		return &loss{reason: fmt.Sprintf("it ends at %d, not at %d", state.LastSeq, m.Seq), first: state.LastSeq + 1}
	case state.NumDeleted > m.Deleted || lostMessages(s.info) > m.Lost:
		return s.missing(ctx)
	}
	m.Deleted, m.Lost = state.NumDeleted, lostMessages(s.info) // fewer: what was missing has reached its age
	if err := s.diagnoseFront(ctx); err != nil {
		return err
	}
	return s.diagnoseBack(ctx)
}

// maxHoles is for how many holes the server is asked where they are.
const maxHoles = 10_000

// missing is the loss of messages in the middle.
func (s *session) missing(ctx context.Context) error {
	found := &loss{reason: fmt.Sprintf("%d messages are missing in the middle", max(s.info.State.NumDeleted, lostMessages(s.info))), first: max(s.mark.First, s.first)}
	if s.info.State.NumDeleted > maxHoles {
		return found
	}
	info, err := s.stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", stream.Name, err)
	}
	gone := info.State.Deleted
	if info.State.Lost != nil {
		gone = append(gone, info.State.Lost.Msgs...)
	}
	if len(gone) > 0 {
		found.first = slices.Min(gone)
	}
	return found
}

// diagnoseFront tells messages that have reached their age from a purge. Both move the first
// sequence; the cursor rows know when a sequence was new.
func (s *session) diagnoseFront(ctx context.Context) error {
	first := s.info.State.FirstSeq
	if first <= max(s.mark.First, s.first, 1) {
		return nil
	}
	var ms int64
	if err := s.relay.config.DB.QueryRow(ctx, publishedSQL, s.mark.Created, int64(first-1)).Scan(&ms); err != nil {
		return pgerr.Explain("read when a message was published", err)
	}
	maxAge := s.info.Config.MaxAge
	if published := time.Duration(ms) * time.Millisecond; maxAge == 0 || published < maxAge-slack(maxAge) {
		return &loss{reason: fmt.Sprintf("it begins at %d, and what stood before is only %s old", first, published), first: max(s.mark.First, s.first)}
	}
	s.first = first
	return nil
}

// slack is how much older than its cursor row a message may be: old rows are thinned to one a
// minute, and a page takes its time.
func slack(maxAge time.Duration) time.Duration { return min(2*time.Minute, maxAge/4) }

// diagnoseBack makes sure that the last message known is the one that was acknowledged there:
// a stream that lost its end may have grown again.
func (s *session) diagnoseBack(ctx context.Context) error {
	if s.mark.LastID == "" {
		return nil
	}
	id, err := s.idAt(ctx, s.mark.Seq)
	if err != nil {
		return err
	}
	if id != "" && id != s.mark.LastID {
		return &loss{reason: fmt.Sprintf("message %d is %q, not %q", s.mark.Seq, id, s.mark.LastID)}
	}
	return nil
}

// idAt returns the message id at a sequence, "" if there is no message.
func (s *session) idAt(ctx context.Context, seq uint64) (string, error) {
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
	return msg.Header.Get(nats.MsgIdHdr), nil
}

// checkDuplicates makes sure that what was acknowledged as stored before is stored still: a
// stream remembers ids of messages that were purged since.
func (s *session) checkDuplicates(ctx context.Context, oldest, newest uint64) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	state := s.info.State
	if newest > state.LastSeq || oldest < state.FirstSeq && oldest >= s.mark.Purged {
		return &loss{reason: fmt.Sprintf("it takes messages for duplicates of %d to %d and holds %d to %d", oldest, newest, state.FirstSeq, state.LastSeq), first: oldest}
	}
	return nil
}

// recoverEvery is the least time between two losses made up for.
const recoverEvery = time.Second

// recover makes up for a loss: the cursor goes back to where everything before is certainly on
// the stream, in a new generation, so that the stream does not take what comes for duplicates.
// What lies before that place is owed: the work messages of tasks that are not finished.
func (s *session) recover(ctx context.Context, found *loss) error {
	c := s.relay.config
	// A stream that loses messages again and again must not be filled in a tight loop.
	if err := loop.Sleep(ctx, recoverEvery-time.Since(s.relay.recovered)); err != nil {
		return err
	}
	s.relay.recovered = time.Now()
	maxAge := s.info.Config.MaxAge
	var n, bound int64
	err := c.DB.QueryRow(ctx, coveredSQL, int64(s.mark.Generation), createdAt(s.info), int64(found.first), maxAge.Milliseconds()).Scan(&n, &bound)
	if err != nil {
		return pgerr.Explain("find the place before the loss", err)
	}
	rows, err := s.feed.Cursors(ctx, n+1, 1)
	if err != nil {
		return err
	}
	if len(rows) == 0 || rows[0].N != n {
		return fmt.Errorf("find the place before the loss: cursor row %d is gone", n)
	}
	last := s.info.State.LastSeq
	id, err := s.idAt(ctx, last)
	if err != nil {
		return err
	}
	purged := s.mark.Purged
	if s.mark.Created != createdAt(s.info) {
		purged = 0
	}
	s.mark = mark{
		Generation: s.mark.Generation + 1, Created: createdAt(s.info), Seq: last, LastID: id,
		First: max(s.info.State.FirstSeq, 1), Purged: purged, Deleted: s.info.State.NumDeleted, Lost: lostMessages(s.info),
	}
	if bound > 0 {
		s.mark.Owed = newOwed(bound)
	}
	if err := s.rewind(ctx, rows[0]); err != nil {
		return err
	}
	s.first = 0
	s.relay.hooks.each(func(h Hook) { h.MessagesLost(ctx, found.reason) })
	c.Logger.ErrorContext(ctx, "stream has lost messages; publishing them again", "reason", found.reason,
		"generation", s.mark.Generation, "from_cursor", n, "work_messages_up_to", bound)
	return nil
}
