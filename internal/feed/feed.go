package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
)

// Options configures a feed. Nil is the default of every field.
type Options struct {
	// PageSize is the maximum number of events in a page. Default: 1000.
	PageSize int
	// PageBytes bounds the data of a page's events: a page ends after the event that exceeds it. Default: 8 MiB.
	PageBytes int
	// Gather is the least time between two windows. Default: 1 ms.
	//
	// It grows with the number of events in the last window, up to 25 ms. After a quarter of PageSize or more, at
	// least half of Gather passes. Under load, events share windows, which makes them cheaper; an idle feed does not
	// delay them. Gather delays no page of an open window, so a backlog is read at full speed.
	Gather time.Duration
	// Prompt is for a reader that publishes outcomes. While a process waits for an outcome, see [AwaitOutcomes],
	// Gather is at most 1 ms. Default: disabled.
	Prompt bool
	// Wake ends the feed's sleep when events may have been committed. Without Wake, an idle feed polls every 10 ms, or
	// every five times Gather if that is longer. Default: disabled.
	Wake *Wake
	// Hinted is for a reader that takes enqueued events by their notifications, see [Wake]. Then windows need not be
	// quick: one opens every 50 ms, unless another notification ends the sleep. Default: disabled.
	Hinted bool
	// Idle is the greatest time between two windows without events, for a feed without Wake. Default: 10 ms, or five
	// times Gather if that is longer.
	Idle time.Duration
	// Reports publishes this feed's pages to feeds that set Follows. They share the data of its events, which must not
	// be changed. Default: disabled.
	Reports *Findings
	// Follows receives the pages of another feed, so that this feed need not read them. It is ignored if Wake or
	// Reports is set. Default: disabled.
	Follows *Findings
	// Relaxed is for a reader that may be given pages again. A cursor row is committed before it is on the disk: a
	// crash of PostgreSQL may undo the last rows. Pages cannot be advanced in a transaction of the reader, but some
	// may be left out. Default: disabled.
	Relaxed bool
	// KeepCursors is the age up to which cursor rows are kept; older rows are thinned more. Default: 72 hours.
	KeepCursors time.Duration
	// AuditEvery is the interval of audits, which count the events read since the last audit by their plain
	// definition. Default: 5 s. Negative: disabled; the next reader of this name that audits continues where the last
	// audit ended.
	AuditEvery time.Duration
	// Logger logs the number of events that an audit found missing. Default: [slog.Default].
	Logger *slog.Logger
	// Archive contains the events that the archive has removed. The feed delivers them in their place. Default: none;
	// these events are left out.
	Archive Archive
	// Missed is called when an audit finds that the feed skipped events, before it delivers them. Default: none.
	Missed func(ctx context.Context, events int)
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.PageSize <= 0 {
		d.PageSize = 1000
	}
	if d.PageBytes <= 0 {
		d.PageBytes = 8 << 20
	}
	if d.Gather <= 0 {
		d.Gather = minGather
	}
	if d.Idle <= 0 {
		d.Idle = max(maxIdle, 5*d.Gather)
	}
	if d.KeepCursors <= 0 {
		d.KeepCursors = 72 * time.Hour
	}
	if d.AuditEvery == 0 {
		d.AuditEvery = 5 * time.Second
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.Wake != nil || d.Reports != nil {
		d.Follows = nil
	}
	return d
}

// Feed is a reader of the ledger, see the package comment. Its position is stored in taskledger.cursor and moves when
// a page is advanced.
//
// A Feed is for one goroutine. Another goroutine may advance pages, in order, while the next page is being read.
type Feed struct {
	db      ledger.DB
	reader  string
	options Options
	now     func() time.Time
	begun   time.Time // when its cursor had been read; it follows no page that was read earlier

	isTail             bool   // without a cursor
	windowSQL, pageSQL string // replaced by mutants in tests

	database database // in which place was reached
	floor    ledger.Position
	logins   loginNames

	place     place  // the place after the last page returned
	n         int64  // cursor row that the next page's Advance expects to be the newest
	chain     *chain // instead, if the feed is relaxed
	newest    Cursor
	rest      rest
	window    opening   // of the last edge of place
	opened    time.Time // when the last window was opened, or its page was taken from another feed
	windowLen int       // number of events read from it
	pageLen   int       // of the last page
	free      freeEvents
	rows      int           // bound of the next page after one of large events, else 0
	archived  ArchiveReader // nil without Options.Archive
	thin      thinner
	audit     auditor
	moments   moments
}

// minGather is the least time between two windows by default.
const minGather = time.Millisecond

// Open returns the feed of reader at its cursor; a reader without a cursor begins at the first event. db must be a
// pool or an idle connection to the primary, because each statement is its own transaction.
//
// Errors: [*OriginError] if the cursor was written in another database or events came from another, [*SequenceError],
// [ledger.ErrNotMigrated].
func Open(ctx context.Context, db ledger.DB, reader string, o *Options) (*Feed, error) {
	if reader == "" {
		return nil, &ledger.InvalidError{Field: "reader", Rule: "must not be empty"}
	}
	options := o.withDefaults()
	f := &Feed{
		db: db, reader: reader, options: options, now: time.Now,
		windowSQL: windowSQL, pageSQL: pageSQL, logins: loginNames{},
		thin:    thinner{keep: options.KeepCursors},
		audit:   auditor{every: options.AuditEvery},
		moments: newMoments(time.Now()),
		rest: rest{wake: options.Wake, follows: options.Follows, isPrompt: options.Prompt, least: options.Gather,
			most: options.Idle, since: time.Now()},
	}
	if options.Follows != nil {
		options.Follows.follow()
	}
	if options.Archive != nil {
		f.archived = options.Archive.Reader()
	}
	newest, err := newestCursor(ctx, db, reader)
	if err != nil {
		return nil, err
	}
	if f.floor, err = readFloor(ctx, db, reader); err != nil {
		return nil, err
	}
	f.database = newest.database
	f.goTo(newest)
	return f, nil
}

func (f *Feed) goTo(c Cursor) {
	f.newest, f.n = c, c.N
	f.move(c.place)
	if f.options.Relaxed {
		f.chain = new(chain) // pages that were read before use the old chain, and fail
		f.chain.n.Store(c.N)
	}
	f.audit.walk = nil // the cursor row includes its result
}

// move moves the feed to a place of its cursor that was just read.
func (f *Feed) move(to place) {
	f.place, f.begun = to, time.Now()
	f.window = opening{ended: f.begun}
	f.rest.polled = time.Time{}
}

// Cursor returns the cursor row at which the feed was opened or to which it was rewound.
func (f *Feed) Cursor() Cursor { return f.newest }

// Cursors returns the kept cursor rows with N below before, newest first, at most limit. If before is 0, it
// begins at the newest. It returns an [*ledger.InvalidError] if limit is less than 1.
func (f *Feed) Cursors(ctx context.Context, before int64, limit int) ([]Cursor, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("list cursors: %w", err)
	}
	if before <= 0 {
		before = math.MaxInt64
	}
	return listCursors(ctx, f.db, f.reader, before, limit)
}

// Next waits for events and returns the next page of them; a page is never empty. It may be called again
// before the page is advanced, to read ahead, and after an error of the database.
//
// Errors: the error of ctx; [ErrNotPrimary]; [ErrCrashed], after which the feed must be opened again; the errors of
// the database.
func (f *Feed) Next(ctx context.Context) (Page, error) {
	for {
		if page, err := f.Look(ctx); err != nil || len(page.Events) > 0 {
			return page, err
		}
	}
}

// Look is [Feed.Next] that also returns after a window without events. It then returns an empty page, which cannot be
// advanced.
func (f *Feed) Look(ctx context.Context) (Page, error) { return f.LookBy(ctx, time.Time{}) }

// LookBy is [Feed.Look] with a time limit: it waits for events until latest at most, unless that is zero, but for at
// least one window.
func (f *Feed) LookBy(ctx context.Context, latest time.Time) (Page, error) {
	if due := f.auditDue(); latest.IsZero() || !due.IsZero() && due.Before(latest) {
		latest = due
	}
	if !f.place.isOpen() {
		if err := f.rest.sleep(ctx, f.gather(), latest); err != nil {
			return Page{}, fmt.Errorf("feed %s: %w", f.reader, err)
		}
	}
	page, ok, err := f.poll(ctx, f.rest.ask(f.now()), true)
	if err != nil {
		return Page{}, fmt.Errorf("feed %s: %w", f.reader, err)
	}
	f.rest.isIdle = !ok
	if !ok {
		return Page{place: f.place}, nil
	}
	f.rest.since = time.Now()
	return page, nil
}

// A page costs about as much as ten of its events, so at half a dozen events a millisecond a delay saves more than it
// costs. If the events come from as many transactions, a window reads the unfinished ones one by one: from some ten
// thousand events a second on it costs as much as fifty events, and the delay grows further.
const (
	gatherPerEvent = 200 * time.Microsecond
	shortGather    = 10 * time.Millisecond
	gatherPerMore  = 50 * time.Microsecond // for each event beyond shortGather's
	maxGather      = 25 * time.Millisecond
)

// gather returns the least time from a window of n events to the next. A large page is hardly
// cheaper per event than half a page, so after a quarter of a page the next window waits for half of Gather. isHurried:
// Gather is at most minGather.
func (o *Options) gather(n int, isHurried bool) time.Duration {
	const few = int(shortGather / gatherPerEvent)
	d := time.Duration(n) * gatherPerEvent
	if n > few {
		d = min(shortGather+time.Duration(n-few)*gatherPerMore, maxGather)
	}
	least := o.Gather
	if isHurried {
		least = min(least, minGather)
	}
	if 4*n >= o.PageSize {
		return max(d, least/2)
	}
	return max(d, least)
}

// gather returns the delay before the next window is opened.
func (f *Feed) gather() time.Duration {
	return max(f.options.gather(f.windowLen, f.rest.isHurried())-f.now().Sub(f.opened), 0)
}

// Poll is Next without waiting: it reports false if there is no event to read now.
func (f *Feed) Poll(ctx context.Context) (Page, bool, error) {
	page, ok, err := f.poll(ctx, 0, false)
	if err != nil {
		return Page{}, false, fmt.Errorf("feed %s: %w", f.reader, err)
	}
	return page, ok, nil
}

// poll returns the next page, from the followed feed or by reading it. If it opens a window, it asks for notifications
// for the duration notified: see rest.ask. For isPatient see follow.
func (f *Feed) poll(ctx context.Context, notified time.Duration, isPatient bool) (Page, bool, error) {
	if !f.place.isOpen() {
		if err := f.thinRows(ctx); err != nil {
			return Page{}, false, err
		}
		missed, err := f.auditNow(ctx)
		if err != nil {
			return Page{}, false, err
		}
		if len(missed) > 0 {
			return f.newPage(Window{}, missed), true, nil
		}
	}
	if f.options.Follows != nil {
		page, ok, err := f.follow(ctx, isPatient)
		if ok || err != nil {
			return page, len(page.Events) > 0, err
		}
	}
	if !f.place.isOpen() {
		return f.readWindow(ctx, notified)
	}
	begun := time.Now()
	read, err := readPage(ctx, f.db, f.pageSQL, f.place, f.bounded(), f.memory())
	if err != nil {
		return Page{}, false, err
	}
	return f.deliver(ctx, f.place.Place, begun, read)
}

// readWindow opens the next window and returns its first page.
func (f *Feed) readWindow(ctx context.Context, notified time.Duration) (Page, bool, error) {
	begun := time.Now()
	w, err := openWindow(ctx, f.db, f.windowSQL, f.place.Seen, f.database.incarnation, f.bounded(), f.memory(),
		notified)
	if err != nil {
		return Page{}, false, err
	}
	from, read, isNext := f.place.Place, opening{begun, time.Now()}, !f.rest.polled.IsZero()
	f.rest.polled = begun
	f.rest.note(len(w.first.events), w.isAwaited, f.now())
	seen := f.place.Seen
	if w.isOpen {
		seen = w.until
	}
	if f.isService() {
		err = f.moments.note(ctx, f.db, w.at, seen, len(w.first.events) > 0, f.now())
	}
	var page Page
	var ok bool
	if err == nil && w.isOpen {
		f.openUntil(w.until, read)
		page, ok, err = f.deliver(ctx, from, begun, w.first)
	}
	if f.options.Reports.isOf(f) { // after the page is kept
		f.options.Reports.report(begun, read.ended, isNext, len(w.first.events) > 0, w.isAwaited)
	}
	return page, ok, err
}

// openUntil opens a window up to an edge.
func (f *Feed) openUntil(edge Edge, read opening) {
	f.place.Until, f.place.After = edge, 0
	f.window, f.opened, f.windowLen = read, f.now(), 0
}

// isService reports whether the feed adds moments. The feeds of services suffice. A tail that asks for notifications
// belongs to a service.
func (f *Feed) isService() bool {
	if f.isTail {
		return f.options.Wake != nil
	}
	return !isSubscriber(f.reader) && f.reader != SealReader
}

// thinRows removes old rows of cursor and moment.
func (f *Feed) thinRows(ctx context.Context) error {
	if !f.isTail {
		if err := f.thin.run(ctx, f.db, f.reader, f.now()); err != nil {
			return err
		}
	}
	if !f.isService() {
		return nil
	}
	return f.moments.thin(ctx, f.db, f.now())
}

// minRows is the least number of events that a page may have because of their size.
const minRows = 16

// bounded returns the options with the size of the next page. The server sends all rows of a page, even the rows after
// PageBytes is exceeded. So after such a page the next one asks for only twice its events.
func (f *Feed) bounded() Options {
	o := f.options
	if f.rows > 0 {
		o.PageSize = min(o.PageSize, f.rows)
	}
	return o
}

// memory returns the memory for the next page.
func (f *Feed) memory() memory { return memory{expected: f.pageLen, free: &f.free} }

// deliver moves the feed over a page of the open window that begins at from and was read after begun.
func (f *Feed) deliver(ctx context.Context, from Place, begun time.Time, read page) (Page, bool, error) {
	if err := f.logins.fill(ctx, f.db, read.events, read.logins); err != nil {
		return Page{}, false, err
	}
	own, err := f.addArchived(ctx, &read)
	if err != nil {
		return Page{}, false, err
	}
	events := read.events
	f.pageLen = len(events)
	switch {
	case read.isLarge:
		f.rows = max(2*len(events), minRows)
	case f.rows > 0:
		f.rows = min(2*f.rows, f.options.PageSize)
	}
	f.place.unaudited.note(f.place.Place, own, f.floor)
	f.windowLen += len(events)
	w := f.place.Window
	if read.more {
		f.place.After = events[len(events)-1].Position
	} else {
		f.place = f.place.finished()
	}
	if f.options.Reports.isOf(f) {
		f.options.Reports.keep(f.database,
			foundPage{from: from, to: f.place.Place, window: f.window, begun: begun, events: events})
	}
	if len(events) == 0 {
		return Page{}, false, nil
	}
	return f.newPage(w, events), true, nil
}

// newPage returns a page of events in a window, whose Advance moves the cursor to the feed's place.
func (f *Feed) newPage(w Window, events []ledger.Event) Page {
	page := Page{Events: events, db: f.db, reader: f.reader, n: f.n, window: w, place: f.place, database: f.database,
		chain: f.chain, free: &f.free}
	f.n++
	return page
}

// Rewind moves the feed back to an earlier cursor row, by appending a row; the feed then reads the later events again.
// Pages not yet advanced become invalid. It returns [ErrSuperseded] if another reader has advanced the cursor, and
// [ErrCrashed] as Next does.
func (f *Feed) Rewind(ctx context.Context, to Cursor, mark json.RawMessage) error {
	newest, err := newestCursor(ctx, f.db, f.reader)
	if err != nil {
		return err
	}
	if err := appendCursor(ctx, f.db, f.reader, newest.N, to.place, mark, f.database, false); err != nil {
		return err
	}
	to.N, to.Mark = newest.N+1, mark
	f.goTo(to)
	return nil
}
