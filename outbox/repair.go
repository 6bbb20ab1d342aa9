package outbox

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

//go:embed sql/covered.sql
var coveredSQL string

// repairEvery is the least time between two repairs, for a stream that loses messages repeatedly.
const repairEvery = time.Second

// repair moves the cursor back to the newest row before which all messages are still on the stream, in a new
// generation, so that the stream does not drop the messages that follow as duplicates. For the events before
// that row it owes the work messages of unfinished tasks.
func (s *session) repair(ctx context.Context, lost *loss) error {
	c := s.relay.config
	if err := loop.Sleep(ctx, repairEvery-time.Since(s.relay.repairedAt)); err != nil {
		return err
	}
	s.relay.repairedAt = time.Now()
	row, bound, err := s.coveredRow(ctx, lost)
	if err != nil {
		return err
	}
	last := s.state.info.State.LastSeq
	id, err := s.messageID(ctx, last)
	if err != nil {
		return err
	}
	purged := s.mark.Purged
	if s.mark.Created != createdAt(s.state.info) {
		purged = 0
	}
	s.mark = mark{
		Generation: s.mark.Generation + 1, Created: createdAt(s.state.info), Seq: last, LastID: id,
		First: max(s.state.info.State.FirstSeq, 1), Purged: purged,
		Deleted: s.state.info.State.NumDeleted, Lost: lostMessages(s.state.info),
	}
	if bound > 0 {
		s.mark.Owed = &owedRange{To: bound}
	}
	if err := s.rewind(ctx, row); err != nil {
		return err
	}
	s.first = 0
	s.relay.hooks.each(func(h Hook) { h.MessagesLost(ctx, lost.reason) })
	c.Logger.ErrorContext(ctx, "stream has lost messages; publishing them again", "reason", lost.reason,
		"generation", s.mark.Generation, "from_cursor", row.N, "work_messages_up_to", int64(bound))
	return nil
}

// coveredRow returns the cursor row before which all messages are still on the stream, or the oldest row, and
// the position up to which the row may have published an event.
func (s *session) coveredRow(ctx context.Context, lost *loss) (feed.Cursor, ledger.Position, error) {
	var n, bound int64
	err := s.relay.config.DB.QueryRow(ctx, coveredSQL, int64(s.mark.Generation), createdAt(s.state.info),
		int64(lost.first), s.state.info.Config.MaxAge.Milliseconds()).Scan(&n, &bound)
	if err != nil {
		return feed.Cursor{}, 0, pgerr.Explain("find the cursor row before the loss", err)
	}
	rows, err := s.feed.Cursors(ctx, n+1, 1)
	if err != nil {
		return feed.Cursor{}, 0, err
	}
	if len(rows) == 0 || rows[0].N != n {
		return feed.Cursor{}, 0, fmt.Errorf("find the cursor row before the loss: row %d does not exist any more", n)
	}
	return rows[0], ledger.Position(bound), nil
}
