package feed

import "github.com/taskledger/taskledger/ledger"

// Edge is one end of a [Window].
type Edge struct {
	Snapshot string          `json:"snapshot"` // a pg_snapshot
	Top      ledger.Position `json:"top"`      // the last position drawn when the snapshot was taken
	Bound    string          `json:"bound"`    // a transaction ID (xid8) newer than both
}

// Beginning returns the edge before the first event. No transaction is visible in its snapshot, since 3 is
// the first transaction ID there is.
func Beginning() Edge { return Edge{Snapshot: "3:3:", Bound: "3"} }

// Window is the events that are visible at Until and not at Seen. It never changes: each reader of it reads
// the same events.
type Window struct {
	Seen  Edge `json:"seen"`
	Until Edge `json:"until,omitzero"`
}

// PageArgs returns the arguments of the SQL function taskledger_internal.feed_page. It returns the events of w in
// position order, at most limit of them, after a position (0: from the first).
func (w Window) PageArgs(after ledger.Position, limit int) []any {
	return []any{w.Seen.Snapshot, int64(w.Seen.Top), w.Seen.Bound, w.Until.Snapshot, int64(w.Until.Top), int64(after),
		int64(limit)}
}

// Place is the position of a reader in the ledger. Everything visible at Seen was delivered. If Until is not
// the zero Edge, a window is open, and its events with a position of at most After were delivered.
type Place struct {
	Window
	After ledger.Position `json:"after,omitempty"`
}

// Columns returns pointers to scan the columns of taskledger.cursor into, with "" and 0 for null: seen,
// seen_top, seen_bound, until, top, bound, after_position.
func (p *Place) Columns() []any {
	return []any{&p.Seen.Snapshot, (*int64)(&p.Seen.Top), &p.Seen.Bound,
		&p.Until.Snapshot, (*int64)(&p.Until.Top), &p.Until.Bound, (*int64)(&p.After)}
}

// DeliveredArgs returns the arguments with which a statement selects the events delivered at p: the events visible in
// the first, and the events visible in the second ("" for no snapshot) whose position is at most the third.
func (p Place) DeliveredArgs() []any {
	return []any{p.Seen.Snapshot, p.Until.Snapshot, int64(p.After)}
}

func (p Place) isOpen() bool { return p.Until.Snapshot != "" }

// place is a Place with the events that the feed must still audit.
type place struct {
	Place
	unaudited stretch // delivered up to here and not audited
}

// finished returns the place after the last page of the window.
func (p place) finished() place {
	return place{Place: Place{Window: Window{Seen: p.Until}}, unaudited: p.unaudited}
}
