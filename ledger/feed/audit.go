package feed

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"time"

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

// tally sums up a set of events so that it can be compared with another: two tallies that differ
// by one event tell which.
type tally struct {
	events    int64
	positions int64 // exclusive or
}

func (t *tally) add(o tally) {
	t.events += o.events
	t.positions ^= o.positions
}

// minus is the tally of what is in t and not in its subset o.
func (t tally) minus(o tally) tally {
	return tally{t.events - o.events, t.positions ^ o.positions}
}

// stretch is what a feed delivered since a snapshot. It is kept in the cursor rows, so that it is
// audited also by the reader that follows one that crashed.
type stretch struct {
	since string // snapshot; "" before anything was read
	read  tally
}

func (s *stretch) note(seen Edge, events []ledger.Event) {
	if s.since == "" {
		s.since = seen.Snapshot
	}
	for _, e := range events {
		s.read.add(tally{1, int64(e.Position)})
	}
}

// auditor is the belt to the braces: now and then it counts the events of the windows read since
// the last time by their plain definition, and compares. What it finds missing was lost by a
// defect of ours; it is delivered late, and said. It takes its time, a bounded piece between two
// windows, and remembers two tallies, however long the stretch is.
type auditor struct {
	every time.Duration
	due   time.Time
	walk  *walk // nil between audits
}

// walk is an audit under way.
type walk struct {
	stretch        // what was read when it began
	until   string // snapshot: where the stretch ended then
	found   tally
	again   bool // the stretch is being delivered again

	xid      string // of the last entry looked at, and its position
	position int64
}

func (w *walk) rewind() { w.xid, w.position = "0", 0 }

func (w *walk) args(entries int) []any {
	return []any{w.since, w.until, w.xid, w.position, int64(entries)}
}

// auditedAtOnce bounds what one step of an audit looks at, and so how long it holds up the feed:
// a few milliseconds.
const auditedAtOnce = 20_000

// begin begins an audit if one is due and something was read since the last.
func (a *auditor) begin(p place, now time.Time) {
	if a.walk != nil || p.unaudited.since == "" || now.Before(a.due) {
		return
	}
	a.due = now.Add(a.every)
	a.walk = &walk{stretch: p.unaudited, until: p.Seen.Snapshot}
	a.walk.rewind()
}

// count looks at the next piece of the stretch and reports whether that was the last.
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

// next returns the next events of the stretch and reports whether they are the last. They are in
// position order among themselves, and bounded as a page is.
func (w *walk) next(ctx context.Context, db ledger.DB, o Options) (events []ledger.Event, done bool, err error) {
	rows, err := db.Query(ctx, auditEventsSQL, w.args(o.PageSize+1)...) // one more tells whether the stretch ends here
	if err != nil {
		return nil, false, pgerr.Explain("audit feed", err)
	}
	var xid, last string // of the row that was scanned, and of the last event of the page
	bytes := 0
	done = true
	for e, err := range ledger.ScanEvents(rows, &xid) {
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

// eventAt returns the event at a position, if there is one.
func eventAt(ctx context.Context, db ledger.DB, position int64) ([]ledger.Event, error) {
	rows, err := db.Query(ctx, eventAtSQL, position)
	if err != nil {
		return nil, pgerr.Explain("audit feed", err)
	}
	var events []ledger.Event
	for e, err := range ledger.ScanEvents(rows) {
		if err != nil {
			return nil, pgerr.Explain("audit feed", err)
		}
		events = append(events, e)
	}
	return events, nil
}

// auditNow does the next step of an audit, if one is due, and returns the events that must be
// delivered. It is called between windows.
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
			f.settle()
		}
		return events, err
	}
	if done, err := w.count(ctx, f.db); err != nil || !done {
		return nil, err
	}
	return f.judge(ctx, w)
}

// judge compares what was counted with what was read. An event that alone is missing is returned;
// of several the tallies do not tell which they are, and the whole stretch is delivered again.
func (f *Feed) judge(ctx context.Context, w *walk) ([]ledger.Event, error) {
	missing := w.found.minus(w.read)
	if missing == (tally{}) {
		f.settle()
		return nil, nil
	}
	if err := crashed(ctx, f.db, f.incarnation); err != nil {
		return nil, err // what was read belongs to the past that the crash took back
	}
	log := f.options.Logger.With("reader", f.reader, "events", missing.events, "since", w.since, "until", w.until)
	if missing.events <= 0 {
		log.WarnContext(ctx, "feed cannot be audited: events that it read are gone")
		f.settle()
		return nil, nil
	}
	log.ErrorContext(ctx, "feed missed committed events; delivering them now")
	for _, h := range f.options.Hooks {
		h.EventsMissed(ctx, int(missing.events))
	}
	if missing.events == 1 {
		events, err := eventAt(ctx, f.db, missing.positions)
		if err == nil && len(events) == 1 {
			f.settle()
			return events, nil
		}
	}
	w.again = true
	w.rewind()
	return nil, nil
}

// settle ends an audit: what awaits the next one was read since.
func (f *Feed) settle() {
	w := f.audit.walk
	f.audit.walk = nil
	f.place.unaudited = stretch{since: w.until, read: f.place.unaudited.read.minus(w.read)}
	if w.until == f.place.Seen.Snapshot {
		f.place.unaudited.since = "" // and an idle ledger costs no audit
	}
}
