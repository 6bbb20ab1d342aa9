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
	return []any{f.place.seen.snapshot, int64(f.place.seen.top), f.place.seen.bound}
}

// AppendArgs are the arguments with which a page would append its cursor row.
func (p Page) AppendArgs() []any {
	return []any{p.reader, p.n, p.place.seen.snapshot, int64(p.place.seen.top), p.place.seen.bound,
		p.place.until.snapshot, int64(p.place.until.top), p.place.until.bound, int64(p.place.after), nil, p.incarnation,
		p.place.unaudited.since, p.place.unaudited.read.events, p.place.unaudited.read.positions}
}

// Incarnation of the database that the feed was opened in.
func (f *Feed) Incarnation() string { return f.incarnation }
