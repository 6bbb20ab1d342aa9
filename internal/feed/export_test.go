package feed

import (
	"strings"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// The statements of the feed, from which tests make mutants.
var (
	WindowSQL       = windowSQL
	PageSQL         = pageSQL
	CursorAppendSQL = cursorAppendSQL
	AuditSQL        = auditSQL
)

// The function that reads pages, and a mutant's.
const (
	pageFunction   = "taskledger_internal.feed_page("
	mutantFunction = "taskledger.mutant_page("
)

// GatherOf returns the least time between two windows, the first of which contains n events.
func GatherOf(o Options, n int) time.Duration {
	o = o.withDefaults()
	return o.gather(n, false)
}

// Mutate replaces statements of a feed; an empty one is kept. A mutant of the function that reads pages reads the first
// page of a window too.
func (f *Feed) Mutate(window, page string) {
	if window != "" {
		f.windowSQL = window
	}
	if page != "" {
		f.pageSQL = page
		if strings.Contains(page, mutantFunction) {
			f.windowSQL = strings.ReplaceAll(f.windowSQL, pageFunction, mutantFunction)
		}
	}
}

// WindowArgs returns the arguments of the window statement at the feed's place.
func (f *Feed) WindowArgs() []any {
	return []any{f.place.Seen.Snapshot, int64(f.place.Seen.Top), f.place.Seen.Bound, f.options.PageSize + 1, 0}
}

// AppendArgs returns the arguments with which a page would append its cursor row.
func (p Page) AppendArgs() []any {
	return []any{p.reader, p.n, p.place.Seen.Snapshot, int64(p.place.Seen.Top), p.place.Seen.Bound,
		p.place.Until.Snapshot, int64(p.place.Until.Top), p.place.Until.Bound, int64(p.place.After), nil,
		p.database.incarnation,
		p.place.unaudited.since, p.place.unaudited.read.events, p.place.unaudited.read.positions, p.database.origin, 0,
		p.database.timeline}
}

// Incarnation returns the incarnation of the database in which the feed was opened.
func (f *Feed) Incarnation() string { return f.database.incarnation }

// ThinMoments makes the next poll thin the moments.
func ThinMoments(f *Feed) { f.moments.due = time.Time{} }

// FollowFor is how long a report lasts.
const FollowFor = followFor

// Report notes a window that was opened between two moments.
func (s *Findings) Report(begun, ended time.Time, isNext, hasEvents bool) {
	s.report(begun, ended, isNext, hasEvents, false)
}

// ReportAwaited notes a window without events that was opened at a time, while a process waited for outcomes.
func (s *Findings) ReportAwaited(at time.Time) { s.report(at, at, true, false, true) }

// IsAwaited calls isAwaited.
func (s *Findings) IsAwaited() bool { return s.isAwaited() }

// After calls after.
func (s *Findings) After(polled time.Time) (quiet time.Time, found <-chan struct{}) {
	return s.after(polled)
}

// The limits of pages that are kept.
const (
	KeptEvents = keptEvents
	KeptBytes  = keptBytes
	KeptFor    = keptFor
)

// FoundPages are pages between places that are identified by numbers.
type FoundPages struct{ pages foundPages }

// NewFoundPages returns no pages.
func NewFoundPages() *FoundPages { return new(FoundPages) }

func numbered(n int) Place { return Place{Window: Window{Seen: Edge{Top: ledger.Position(n)}}} }

// Keep adds a page of events with this number of bytes each.
func (s *FoundPages) Keep(database string, from, to, events, bytes int) {
	p := foundPage{from: numbered(from), to: numbered(to), events: make([]ledger.Event, events)}
	for i := range p.events {
		p.events[i].Data = make([]byte, bytes)
	}
	s.pages.keep(inDatabase(database), p, time.Now())
}

func inDatabase(name string) database { return database{origin: name} }

// After returns the number of pages after a place, -1 if that is unknown.
func (s *FoundPages) After(database string, at int) int {
	pages, isKnown := s.pages.after(inDatabase(database), numbered(at), time.Time{})
	if !isKnown {
		return -1
	}
	return len(pages)
}

// First returns where the first page that is kept begins.
func (s *FoundPages) First() int { return int(s.pages.pages[0].from.Seen.Top) }
