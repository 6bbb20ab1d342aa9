package feed

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/eventrows"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/audit.sql
	auditSQL string
	//go:embed sql/audit_events.sql
	auditEventsSQL string
	//go:embed sql/event_at.sql
	eventAtSQL string
)

// tally summarizes a set of events so that it can be compared with another set. If two tallies differ by one event,
// their difference is its position.
type tally struct {
	events    int64
	positions int64 // exclusive or
}

func (t *tally) add(o tally) {
	t.events += o.events
	t.positions ^= o.positions
}

// minus returns the tally of the events in t that are not in its subset o.
func (t tally) minus(o tally) tally {
	return tally{t.events - o.events, t.positions ^ o.positions}
}

// stretch is the set of events that a feed delivered since a snapshot. It is stored in the cursor rows, so the next
// reader audits it after a crash.
type stretch struct {
	since string // snapshot; "" before the first read
	read  tally
}

// note adds events that were delivered after a place. Events up to the floor are left out: they have no transaction
// ids to audit them by. A stretch does not begin within a window, because taskledger.read_feed and
// taskledger.seek_feed, which are not audited, leave windows that are passed in part.
func (s *stretch) note(at Place, events []ledger.Event, floor ledger.Position) {
	switch {
	case s.since == "" && at.After > 0:
		return
	case s.since == "":
		s.since = at.Seen.Snapshot
	}
	for _, e := range events {
		if e.Position > floor {
			s.read.add(tally{1, int64(e.Position)})
		}
	}
}

// auditor is a second check of the feed. At intervals it counts the events of the windows read since the last audit by
// their plain definition, and compares. It logs and delivers events that the windows missed by a defect of this
// package. An audit runs in bounded steps between two windows and stores two tallies, however long the stretch is.
type auditor struct {
	every time.Duration
	due   time.Time
	walk  *walk // nil between audits
}

// walk is an audit in progress.
type walk struct {
	stretch        // read when the audit began
	until   string // snapshot: the end of the stretch at that time
	found   tally
	again   bool // the stretch is being delivered again

	xid      string // of the last entry read, and its position
	position int64
}

func (w *walk) rewind() { w.xid, w.position = "0", 0 }

func (w *walk) args(entries int) []any {
	return []any{w.since, w.until, w.xid, w.position, int64(entries)}
}

// auditedAtOnce is the maximum number of entries that one step of an audit reads. It bounds the delay of the
// feed to a few milliseconds.
const auditedAtOnce = 20_000

// begin begins an audit if one is due and the feed has read events since the last one.
func (a *auditor) begin(p place, now time.Time) {
	if a.walk != nil || p.unaudited.since == "" || now.Before(a.due) {
		return
	}
	a.due = now.Add(a.every)
	a.walk = &walk{stretch: p.unaudited, until: p.Seen.Snapshot}
	a.walk.rewind()
}

// count reads the next piece of the stretch and reports whether it was the last.
func (w *walk) count(ctx context.Context, db ledger.DB) (done bool, err error) {
	var entries, position int64
	var xid string
	var found tally
	_, err = pgquery.Row(ctx, db, auditSQL, w.args(auditedAtOnce), &entries, &found.events, &found.positions, &xid,
		&position)
	if err != nil {
		return false, pgerr.Explain("audit feed", err)
	}
	w.found.add(found)
	w.xid, w.position = xid, position
	return entries < auditedAtOnce, nil
}

// next returns the next events of the stretch and reports whether they are the last. They are in position
// order, and bounded as a page is.
func (w *walk) next(ctx context.Context, db ledger.DB, o Options) (events []ledger.Event, done bool, err error) {
	rows, err := db.Query(ctx, auditEventsSQL, w.args(o.PageSize+1)...) // one more shows whether the stretch ends here
	if err != nil {
		return nil, false, pgerr.Explain("audit feed", err)
	}
	var xid, last string // of the scanned row, and of the last event of the page
	bytes := 0
	done = true
	for e, err := range eventrows.Scan(rows, &xid) {
		if err != nil {
			return nil, false, pgerr.Explain("audit feed", err)
		}
		if len(events) == o.PageSize || bytes > o.PageBytes {
			done = false
			break
		}
		events, last = append(events, e), xid
		bytes += len(e.Data) + len(e.Meta)
	}
	if len(events) > 0 {
		w.xid, w.position = last, int64(events[len(events)-1].Position)
		slices.SortFunc(events, func(a, b ledger.Event) int { return cmp.Compare(a.Position, b.Position) })
	}
	return events, done, nil
}

// eventAt returns the event at a position, if it exists.
func eventAt(ctx context.Context, db ledger.DB, position int64) ([]ledger.Event, error) {
	rows, err := db.Query(ctx, eventAtSQL, position)
	if err != nil {
		return nil, pgerr.Explain("audit feed", err)
	}
	var events []ledger.Event
	for e, err := range eventrows.Scan(rows) {
		if err != nil {
			return nil, pgerr.Explain("audit feed", err)
		}
		events = append(events, e)
	}
	return events, nil
}

// auditDue returns when the next step of an audit is due; the zero time if nothing was read since the last audit.
func (f *Feed) auditDue() time.Time {
	switch {
	case f.options.AuditEvery < 0 || f.audit.walk == nil && f.place.unaudited.since == "":
		return time.Time{}
	case f.audit.walk != nil || f.audit.due.IsZero():
		return f.now()
	}
	return f.audit.due
}

// auditNow executes the next step of an audit, if one is due, and returns the events that must be delivered.
// It is called between windows.
func (f *Feed) auditNow(ctx context.Context) ([]ledger.Event, error) {
	if f.options.AuditEvery < 0 {
		return nil, nil
	}
	f.audit.begin(f.place, f.now())
	w := f.audit.walk
	switch {
	case w == nil:
		return nil, nil
	case w.again:
		events, done, err := w.next(ctx, f.db, f.options)
		if err == nil && done {
			f.finish()
		}
		return events, err
	}
	if done, err := w.count(ctx, f.db); err != nil || !done {
		return nil, err
	}
	return f.judge(ctx, w)
}

// judge compares the counted events with those read. It returns a single missing event. If several are
// missing, the tallies do not identify them, and the whole stretch is delivered again.
func (f *Feed) judge(ctx context.Context, w *walk) ([]ledger.Event, error) {
	missing := w.found.minus(w.read)
	if missing == (tally{}) {
		f.finish()
		return nil, nil
	}
	if err := crashed(ctx, f.db, f.database.incarnation); err != nil {
		return nil, err // the crash has undone events that were read
	}
	log := f.options.Logger.With("reader", f.reader, "events", missing.events, "since", w.since, "until", w.until)
	if missing.events <= 0 {
		if isArchived, err := f.isArchived(ctx, w.since); isArchived || err != nil {
			if err == nil {
				f.finish()
			}
			return nil, err
		}
		log.WarnContext(ctx, "feed cannot be audited: events that it read are gone")
		f.finish()
		return nil, nil
	}
	log.ErrorContext(ctx, "feed missed committed events; delivering them now")
	if f.options.Missed != nil {
		f.options.Missed(ctx, int(missing.events))
	}
	if missing.events == 1 {
		events, err := eventAt(ctx, f.db, missing.positions)
		if err == nil && len(events) == 1 {
			f.finish()
			return events, nil
		}
	}
	w.again = true
	w.rewind()
	return nil, nil
}

// isArchived reports whether the archive has removed events that a snapshot may not see. It has found all events that
// this feed had read (function taskledger_internal.audit_cursors), while this audit was still to come.
func (f *Feed) isArchived(ctx context.Context, since string) (bool, error) {
	inFiles, inNone, err := archivedBeyond(ctx, f.db, Edge{Snapshot: since}, nil)
	return inFiles.Events > 0 || inNone.Events > 0, err
}

// finish ends an audit: the next one covers the events read since it began.
func (f *Feed) finish() {
	w := f.audit.walk
	f.audit.walk = nil
	f.place.unaudited = stretch{since: w.until, read: f.place.unaudited.read.minus(w.read)}
	if w.until == f.place.Seen.Snapshot {
		f.place.unaudited.since = "" // and an idle ledger costs no audit
	}
}
