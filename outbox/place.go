package outbox

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/place.sql
var placeSQL string

const (
	// filledPositions bounds how many events are published again on a stream that is new or cannot be continued. New
	// events wait for them, about 3 s.
	filledPositions = 100_000
	// judged is how many of the newest messages are judged on a stream that is unknown to the cursor row.
	judged = 1000
)

// goOn compares the stream with the mark of the cursor row, moves the cursor back if the stream has lost messages at
// its end, and reads the tail. If anything has changed, it writes a cursor row before the first message, so that a
// session that is killed later leaves the place behind which its messages are.
func (s *session) goOn(ctx context.Context, hasMark bool, run string) error {
	created, state := createdAt(s.info), s.info.State
	at, found := s.feed.Cursor(), s.mark
	now, reason, isKnown := found, "", hasMark
	switch {
	case !hasMark: // older messages are of events that are published again
		now = mark{Generation: 1, Created: created}
	case now.Created != created:
		reason = "it was recreated at " + created
	case state.LastSeq < now.Seq:
		reason = fmt.Sprintf("it ends at %d, not at %d", state.LastSeq, now.Seq)
	}
	if reason != "" {
		var err error
		if at, now, isKnown, err = s.placeAfterLoss(ctx); err != nil {
			return err
		}
	}
	if !isKnown {
		now.Tail = max(state.LastSeq, judged) - judged
	}
	now.Server, now.MaxAge = run, s.info.Config.MaxAge.Milliseconds()
	s.mark, s.last = now, state.LastSeq
	if err := s.readTail(ctx); err != nil {
		return err
	}
	if !isKnown {
		s.tail = tail{} // earlier events of their tasks may be missing
	}
	if s.tail.isEmpty() {
		now.Seq, now.Tail = s.last, s.last
	}
	if s.mark = now; now != found || at.N != s.feed.Cursor().N {
		if err := s.rewind(ctx, at, now); err != nil {
			return err
		}
	}
	if reason != "" {
		s.relay.hooks.each(func(h Hook) { h.MessagesLost(ctx, reason) })
		// A warning: a planned rebuild begins with an empty stream, too.
		s.relay.config.Logger.WarnContext(ctx, "stream has lost messages; publishing events again", "reason", reason,
			"from_position", int64(max(at.Place().Seen.Top, at.Place().After)))
	}
	return nil
}

// placeAfterLoss returns the cursor row at which to continue after a loss, and the new mark. isCovered reports whether
// all messages of events before the row are on the stream, and messages of later events are behind the mark's tail.
func (s *session) placeAfterLoss(ctx context.Context) (at feed.Cursor, now mark, isCovered bool, err error) {
	var n int64
	created := createdAt(s.info)
	err = s.relay.config.DB.QueryRow(ctx, placeSQL, created, int64(s.info.State.LastSeq),
		s.info.Config.MaxAge.Milliseconds(), int64(filledPositions)).Scan(&n, &isCovered)
	if err != nil {
		return at, now, false, pgerr.Explain("find the cursor row before the loss", err)
	}
	rows, err := s.feed.Cursors(ctx, n+1, 1)
	if err != nil {
		return at, now, false, err
	}
	if len(rows) == 0 || rows[0].N != n {
		return at, now, false, fmt.Errorf("find the cursor row before the loss: row %d does not exist any more", n)
	}
	at = rows[0]
	now.Created = created
	if isCovered {
		if now, _, err = parseMark(at.Mark); err != nil {
			return at, now, false, err
		}
	}
	now.Generation = s.mark.Generation + 1
	return at, now, isCovered, nil
}

// rewind appends a cursor row at the place of another row, with a mark, unless another relay has appended a row.
func (s *session) rewind(ctx context.Context, to feed.Cursor, m mark) error {
	newest, err := s.feed.Cursors(ctx, 0, 1)
	if err != nil {
		return err
	}
	if len(newest) == 0 || newest[0].N != s.feed.Cursor().N {
		return feed.ErrSuperseded
	}
	return s.feed.Rewind(ctx, to, m.encode())
}
