package feed

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/moment_add.sql
	momentAddSQL string
	//go:embed sql/moment_thin.sql
	momentThinSQL string
)

// momentEvery is the least time between two moments of a feed.
const momentEvery = time.Second

// moments records when which events were visible, for [ledger.MomentAt]: an edge of the windows about every second in
// which events become visible, the edge after the last of them, and the end of a longer time without events. Several
// feeds share the rows.
type moments struct {
	isOwed bool      // events became visible that no moment covers
	tried  time.Time // when a moment was last added
	quiet  moment    // the last time at which a poll found no newly visible event
	due    time.Time // of the next thinning
	from   int64     // see sql/moment_thin.sql
}

// newMoments returns the moments of a feed that is opened now. It adds and thins nothing at once, so that a feed whose
// connections are killed repeatedly begins as soon as possible.
func newMoments(now time.Time) moments { return moments{tried: now, due: now.Add(thinEvery)} }

// moment is a time of the database, in microseconds since 1970, and the edge visible then.
type moment struct {
	at int64
	Edge
}

func (m moment) args() []any { return []any{m.at, m.Snapshot, int64(m.Top), m.Bound} }

// note records that a poll at a time saw an edge, and whether events had become visible. It adds moments if they are
// due.
func (s *moments) note(ctx context.Context, db ledger.DB, at int64, edge Edge, hasEvents bool, now time.Time) error {
	seen := moment{at, edge}
	before := s.quiet
	if hasEvents {
		s.isOwed = true
	} else {
		before = moment{}
	}
	s.quiet = seen
	if !s.isOwed || now.Sub(s.tried) < momentEvery {
		return nil
	}
	s.tried = now
	if before.at == 0 {
		before = moment{Edge: Beginning()} // no moment
	}
	var isAdded bool
	_, err := pgquery.Row(ctx, db, momentAddSQL, append(before.args(), seen.args()...), &isAdded)
	s.isOwed = !isAdded
	return pgerr.Explain("add moment", err)
}

// thin thins old moments if that is due.
func (s *moments) thin(ctx context.Context, db ledger.DB, now time.Time) error {
	if now.Before(s.due) {
		return nil
	}
	s.due = now.Add(thinEvery)
	_, err := pgquery.Row(ctx, db, momentThinSQL, []any{s.from}, &s.from)
	return pgerr.Explain("thin moments", err)
}
