package outbox

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

var (
	//go:embed sql/covered.sql
	coveredSQL string
	//go:embed sql/replayed.sql
	replayedSQL string
)

// repairEvery is the least time between two repairs, for a stream that loses messages repeatedly.
const repairEvery = time.Second

// repair begins a new generation, so that the stream does not drop what is published again as duplicates, and notes
// what is owed. The cursor stays: new events are published at once, and what is owed beside them.
func (s *session) repair(ctx context.Context, lost *loss) error {
	c := s.relay.config
	if err := loop.Sleep(ctx, repairEvery-time.Since(s.relay.repairedAt)); err != nil {
		return err
	}
	s.relay.repairedAt = time.Now()
	at := s.feed.Cursor()
	o, kinds, err := s.assessLoss(ctx, lost, at)
	if err != nil {
		return err
	}
	last := s.state.info.State.LastSeq
	id, err := s.eventAt(ctx, last)
	if err != nil {
		return err
	}
	purged := s.mark.Purged
	if s.mark.Created != createdAt(s.state.info) {
		purged = 0
	}
	s.mark = mark{
		Generation: s.mark.Generation + 1, Created: createdAt(s.state.info), Seq: last, LastEvent: id, Accounted: last,
		First: max(s.state.info.State.FirstSeq, 1), Purged: purged,
		Deleted: s.state.info.State.NumDeleted, Lost: lostMessages(s.state.info),
		Withheld: kinds, Owed: o, Server: s.mark.Server, ServerSince: s.mark.ServerSince,
	}
	if err := s.writeMark(ctx); err != nil {
		return err
	}
	s.first = 0
	s.relay.mayEndRebuilds = true
	s.relay.hooks.each(func(h Hook) { h.MessagesLost(ctx, lost.reason) })
	// A warning: another NATS server of the same ledger begins with an empty stream, and so does a planned restart.
	c.Logger.WarnContext(ctx, "stream has lost messages; publishing them again", "reason", lost.reason,
		"generation", s.mark.Generation, "work_from", int64(o.next().Seen.Top), "events_from", int64(o.Events.Seen.Top))
	return nil
}

// replayShare of the stream's limit is for events that are published again for subscribers.
const replayShare = 4

// assessLoss returns what is owed after a loss, and the withheld kinds. Their published messages are lost too, so their
// places are those of the row before the loss, or before their unfinished tasks. at is the cursor.
func (s *session) assessLoss(ctx context.Context, lost *loss, at feed.Cursor) (*owed, *withheld, error) {
	db := s.relay.config.DB
	row, isCovered, err := s.coveredRow(ctx, lost)
	if err != nil {
		return nil, nil, err
	}
	o := &owed{Work: row.Place(), Events: row.Place(), To: at.Place(), Since: s.openedAtDB}
	if s.mark.Owed != nil {
		o.Since = s.mark.Owed.Since
	}
	if isCovered {
		m, _, err := parseMark(row.Mark)
		if err != nil {
			return nil, nil, err
		}
		if m.Owed != nil { // it has not published all of an earlier loss
			o.Listed, o.From, o.Work, o.Events = m.Owed.Listed, m.Owed.From, m.Owed.Work, m.Owed.Events
		}
		return o, withheldAgain(m.Withheld, s.mark.Withheld, o.next()), nil
	}
	place, isListed, err := lingeringPlace(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	kinds := new(withheld)
	o.Work = place
	var from map[ledger.Kind]feed.Place
	if isListed {
		if from, err = lingeringFrom(ctx, db, s.mark.Withheld); err != nil {
			return nil, nil, err
		}
		o.Listed, o.From = &listed{}, cmp.Or(from[""], place)
	}
	for kind := range s.mark.Withheld.all() {
		kinds.set(kind, s.mark.Withheld.shards(kind), cmp.Or(from[kind], place))
	}
	if limit := s.state.limit(); limit > 0 { // older events would be removed before a subscriber reads them
		var n int64
		err := db.QueryRow(ctx, replayedSQL, row.N, limit/replayShare/s.state.messageSize()).Scan(&n)
		if err != nil {
			return nil, nil, pgerr.Explain("find the cursor row from which to publish again", err)
		}
		if row, err = s.cursorRow(ctx, n); err != nil {
			return nil, nil, err
		}
		o.Events = row.Place()
	}
	return o, kinds, nil
}

// withheldAgain returns the withheld kinds after the loss of all that was published after a cursor row: those that the
// row has, which may have been refilled since then, and from a place on those that have been withheld since then.
func withheldAgain(then, now *withheld, from feed.Place) *withheld {
	again := then.clone()
	for kind := range now.all() {
		if shards := now.shards(kind) &^ again.shards(kind); shards != 0 {
			again.set(kind, shards, from)
		}
	}
	return again
}

// coveredRow returns the cursor row before which all messages are still on the stream or too old for it, or else the
// oldest row. It reports whether all of them are still there.
func (s *session) coveredRow(ctx context.Context, lost *loss) (row feed.Cursor, isCovered bool, err error) {
	var n int64
	err = s.relay.config.DB.QueryRow(ctx, coveredSQL, int64(s.mark.Generation), createdAt(s.state.info),
		int64(lost.first), s.state.info.Config.MaxAge.Milliseconds()).Scan(&n, &isCovered)
	if err != nil {
		return row, false, pgerr.Explain("find the cursor row before the loss", err)
	}
	row, err = s.cursorRow(ctx, n)
	return row, isCovered, err
}

// cursorRow returns row n of the cursor.
func (s *session) cursorRow(ctx context.Context, n int64) (feed.Cursor, error) {
	rows, err := s.feed.Cursors(ctx, n+1, 1)
	if err != nil {
		return feed.Cursor{}, err
	}
	if len(rows) == 0 || rows[0].N != n {
		return feed.Cursor{}, fmt.Errorf("find the cursor row before the loss: row %d does not exist any more", n)
	}
	return rows[0], nil
}
