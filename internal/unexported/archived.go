package unexported

// ArchivedRange selects archived events: those that the place To has passed and the place From has not, as the SQL
// function taskledger_internal.feed_passed compares, in the order of positions.
type ArchivedRange struct {
	From, To ArchivedPlace
	Above    int64 // only events with a higher position
	Last     int64 // and at most this one
	Limit    int   // of events
}

// ArchivedPlace is the place of a reader: the columns of a cursor.
type ArchivedPlace struct {
	Seen, Until string // snapshots; Until may be ""
	After       int64
	// At is the time of the place in microseconds, 0 for none. It has passed the events of its window up to that time,
	// too: the table has no archived event from which After could follow.
	At int64
}

// SetArchive sets the archive that ledger.Events reads for a *ledger.Range, a
// func(context.Context, ledger.DB, ArchivedRange) (events []ledger.Event, more bool, err error). It is called by one
// goroutine.
var SetArchive func(rangeOf, archive any)
