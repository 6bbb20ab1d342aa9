package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/linger_has.sql
	lingerHasSQL string
	//go:embed sql/linger_next.sql
	lingerNextSQL string
	//go:embed sql/linger_set.sql
	lingerSetSQL string
)

var ( // tests change them
	// lingerAfter is how long a task must be unfinished at least before it is listed. Most tasks finish before, and
	// cost nothing.
	lingerAfter = 5 * time.Second
	// lingerBusy is how long the list is put off at most while there are many events: of a backlog that is being worked
	// off, most tasks finish meanwhile. internal/alarm counts on less than 30 s together.
	lingerBusy = 10 * time.Second
	// lingerPage is how many events a step reads.
	lingerPage = 5_000
)

// lingerEvents is the number of events within lingerAfter that are many.
const lingerEvents = 5_000

// lingerTotals is how many running totals are read to find that no task is unfinished.
const lingerTotals = 500

// lingering lists the tasks that do not finish soon, so that they are found without a walk of history. The list is
// exact at a place of the feed that follows the projector's: every task that became available up to there is listed if
// it is available or running. The place is in the mark of the projector's cursor rows, so a crash undoes both.
type lingering struct {
	known   *known // rows that move when they are listed
	place   feed.Place
	applied feed.Edge // the projector has applied everything up to here
	upTo    feed.Edge // it had, when the list was last due
	due     time.Time

	events int       // applied since the list was last due
	latest time.Time // the list is not put off any longer
}

// followerMark is the mark of the projector's cursor rows. The view taskledger_internal.lingering_place and
// tags_whole.sql name its fields.
type followerMark struct {
	Listed feed.Place `json:"listed"`
	// Tagged is whether the tags of all projected tasks are added. A projector of an older version, which adds none,
	// leaves it out. While the tags of earlier tasks are being added, Tagging is how far.
	Tagged  bool        `json:"tagged,omitempty"`
	Tagging *tagHistory `json:"tagging,omitempty"`
}

func markOf(listed feed.Place, tags tagHistory) json.RawMessage {
	m := followerMark{Listed: listed, Tagged: tags.isWhole()}
	if !m.Tagged {
		m.Tagging = &tags
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	return text
}

func newLingering(at feed.Cursor, k *known) (*lingering, error) {
	l := &lingering{
		known: k, place: feed.Place{Window: feed.Window{Seen: feed.Beginning()}}, applied: at.Place().Seen,
	}
	if len(at.Mark) == 0 {
		return l, nil
	}
	var m followerMark
	if err := json.Unmarshal(at.Mark, &m); err != nil {
		return nil, &ledger.CorruptError{What: "mark of the projector's cursor", Err: err}
	}
	l.place = m.Listed
	return l, nil
}

// step is a page of the list: the tasks to be listed, and the place after them.
type step struct {
	kinds, ids, positions pgarray.Builder
	place                 feed.Place
}

// advance notes that the projector has applied a page.
func (l *lingering) advance(page feed.Page, listed feed.Place) {
	l.place, l.applied = listed, page.Place().Seen
	l.events += len(page.Events)
}

// end returns the end of the next window of the list, where the projector was lingerAfter ago; zero: none is due.
func (l *lingering) end(now time.Time) feed.Edge {
	if now.Before(l.due) {
		return feed.Edge{}
	}
	l.due = now.Add(lingerAfter)
	until, isBusy := l.upTo, l.events >= lingerEvents
	l.upTo, l.events = l.applied, 0
	if isBusy && now.Before(l.latest) {
		return feed.Edge{}
	}
	l.latest = l.due.Add(lingerBusy)
	return until
}

// next returns the next page of the list, which is empty most of the time.
func (l *lingering) next(ctx context.Context, db ledger.DB) (*step, error) {
	next := &step{place: l.place}
	if l.place.Until == (feed.Edge{}) {
		until := l.end(time.Now())
		if until == (feed.Edge{}) || until == l.place.Seen {
			return next, nil
		}
		var hasUnfinished bool
		if _, err := pgquery.Row(ctx, db, lingerHasSQL, []any{int64(lingerTotals)}, &hasUnfinished); err != nil {
			return next, pgerr.Explain("count unfinished tasks", err)
		}
		if !hasUnfinished { // the list is empty, so it is exact wherever the projector is
			next.place = feed.Place{Window: feed.Window{Seen: l.applied}}
			return next, nil
		}
		next.place.Until, next.place.After = until, 0
	}
	rows, err := db.Query(ctx, lingerNextSQL, next.place.PageArgs(next.place.After, lingerPage)...)
	if err != nil {
		return next, pgerr.Explain("find lingering tasks", err)
	}
	defer rows.Close()
	var events, position int64
	for rows.Next() {
		var kind, id *string
		var madeAt *int64
		if err := rows.Scan(&events, &position, &kind, &id, &madeAt); err != nil {
			return next, pgerr.Explain("find lingering tasks", err)
		}
		if kind != nil {
			next.kinds.Add(*kind)
			next.ids.Add(*id)
			next.positions.AddInt(*madeAt)
			l.known.forget(ledger.Key{Kind: ledger.Kind(*kind), BizID: ledger.BizID(*id)})
		}
	}
	if next.place.After = ledger.Position(position); events < int64(lingerPage) {
		next.place = feed.Place{Window: feed.Window{Seen: next.place.Until}}
	}
	return next, pgerr.Explain("find lingering tasks", rows.Err())
}

// write lists the tasks of a page in the transaction that advances the cursor with its mark.
func (s *step) write(ctx context.Context, tx pgx.Tx) error {
	if s.kinds.IsEmpty() {
		return nil
	}
	_, err := tx.Exec(ctx, lingerSetSQL, s.kinds.String(), s.ids.String(), s.positions.String())
	return pgerr.Explain("list lingering tasks", err)
}
