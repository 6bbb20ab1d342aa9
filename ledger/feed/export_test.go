package feed

// The statements of the feed, for mutants of them.
var (
	WindowSQL       = windowSQL
	PageSQL         = pageSQL
	CursorAppendSQL = cursorAppendSQL
	AuditSQL        = auditSQL
)

// Mutate replaces statements of a feed; empty ones stay.
func (f *Feed) Mutate(window, page string) {
	if window != "" {
		f.windowSQL = window
	}
	if page != "" {
		f.pageSQL = page
	}
}

// WindowArgs are the arguments of the window statement where the feed stands.
func (f *Feed) WindowArgs() []any {
	return []any{f.place.Seen.Snapshot, int64(f.place.Seen.Top), f.place.Seen.Bound}
}

// AppendArgs are the arguments with which a page would append its cursor row.
func (p Page) AppendArgs() []any {
	return []any{p.reader, p.n, p.place.Seen.Snapshot, int64(p.place.Seen.Top), p.place.Seen.Bound,
		p.place.Until.Snapshot, int64(p.place.Until.Top), p.place.Until.Bound, int64(p.place.After), nil, p.incarnation,
		p.place.unaudited.since, p.place.unaudited.read.events, p.place.unaudited.read.positions}
}

// Incarnation of the database that the feed was opened in.
func (f *Feed) Incarnation() string { return f.incarnation }
