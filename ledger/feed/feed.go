package feed

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// Errors that end a feed; compare with errors.Is.
var (
	// ErrSuperseded is returned if another feed of the same reader has advanced the cursor. The superseded feed must
	// stop.
	ErrSuperseded = feed.ErrSuperseded
	// ErrCrashed is returned if the database crashed or failed over after the feed was opened. The database
	// may assign positions again that the feed has passed. Open the feed again: it continues at its cursor.
	ErrCrashed = feed.ErrCrashed
	// ErrNotPrimary is returned if the database is a standby. The snapshots of a standby do not list running
	// transactions.
	ErrNotPrimary = feed.ErrNotPrimary
)

// IsRefusal reports whether an error means that a reader must not continue before an operator has acted, for example
// because the database was restored from a dump. The error's text names the command.
func IsRefusal(err error) bool { return feed.IsRefusal(err) }

// Options configures a feed. Nil is the default of every field.
type Options struct {
	// PageSize is the maximum number of events in a page, which also ends after the event with which their data exceeds
	// 8 MiB. Default: 1000.
	PageSize int
	// Logger logs events that an audit found missing; the feed delivers them late. Default: [slog.Default].
	Logger *slog.Logger
}

func (o *Options) options() *feed.Options {
	if o == nil {
		return nil
	}
	return &feed.Options{PageSize: o.PageSize, Logger: o.Logger}
}

// Feed is a reader of the ledger. A Feed is for one goroutine. Another goroutine may advance pages, in order, while the
// next page is being read.
type Feed struct{ feed *feed.Feed }

// Open returns the feed of reader at its place; a reader without a place begins at the first event. db must be a pool
// or an idle connection to the primary, because each statement is its own transaction. Its login needs the role relay.
//
// Errors: an [IsRefusal]; [ErrNotPrimary]; [ledger.ErrNotMigrated].
func Open(ctx context.Context, db ledger.DB, reader string, o *Options) (*Feed, error) {
	f, err := feed.Open(ctx, db, reader, o.options())
	return opened(f, err)
}

// Tail returns a feed that begins at the present and keeps no place: the events that are committed after the call,
// while the process lives. It needs only the rights to read, audits nothing, and its pages cannot be advanced. db is
// as for [Open].
//
// Errors: [ErrNotPrimary], [ledger.ErrNotMigrated]. After [ErrCrashed] of the feed, events may be missing. A feed with
// only the rights to read returns it too, if it was the first feed in a new database.
func Tail(ctx context.Context, db ledger.DB, o *Options) (*Feed, error) {
	f, err := feed.Tail(ctx, db, o.options())
	return opened(f, err)
}

func opened(f *feed.Feed, err error) (*Feed, error) {
	if err != nil {
		return nil, err
	}
	return &Feed{f}, nil
}

// Next waits for events and returns the next page of them; a page is never empty. It may be called again
// before the page is advanced, to read ahead, and after an error of the database.
//
// Errors: the error of ctx; [ErrNotPrimary]; [ErrCrashed], after which the feed must be opened again; the errors of
// the database.
func (f *Feed) Next(ctx context.Context) (Page, error) {
	page, err := f.feed.Next(ctx)
	return Page{page.Events, page}, err
}

// Page is a run of events from a feed, and the place after them.
type Page struct {
	Events []ledger.Event

	page feed.Page
}

// Advance records that this page was processed: it stores the place after the page. mark is the reader's own note; nil:
// no note. db is the transaction that has processed the events, so that both are committed or neither. If db is nil,
// the place is committed at once.
//
// Advance pages in the order in which they were read. After a page that was left out, the next one fails.
//
// It returns [ErrSuperseded] if another reader of this name has advanced: roll back, stop, and change nothing. It
// returns [ErrCrashed] if the database crashed after the page was read.
func (p Page) Advance(ctx context.Context, db ledger.DB, mark json.RawMessage) error {
	return p.page.Advance(ctx, db, mark)
}

// Place is a place of a reader at some time. Its last one is where the reader continues.
type Place struct {
	N          int64           // 1, 2, 3…
	Mark       json.RawMessage // the reader's own note, given to Page.Advance
	RecordedAt time.Time

	cursor feed.Cursor
}

func placeOf(c feed.Cursor) Place { return Place{c.N, c.Mark, c.RecordedAt, c} }

// Place returns the place at which the feed was opened, or to which it was rewound.
func (f *Feed) Place() Place { return placeOf(f.feed.Cursor()) }

// Places returns earlier places of the reader with N below before, newest first, at most limit. If before is 0, it
// begins at the newest. Places of the last 72 hours are kept, older ones the fewer the older they are. It returns an
// [*ledger.InvalidError] if limit is less than 1.
func (f *Feed) Places(ctx context.Context, before int64, limit int) ([]Place, error) {
	cursors, err := f.feed.Cursors(ctx, before, limit)
	places := make([]Place, len(cursors))
	for i, c := range cursors {
		places[i] = placeOf(c)
	}
	return places, err
}

// Rewind moves the feed back to an earlier place; the feed then reads the later events again. Pages not yet advanced
// become invalid. It commits. It returns [ErrSuperseded] if another reader of this name has advanced, and [ErrCrashed]
// as Next does.
func (f *Feed) Rewind(ctx context.Context, to Place, mark json.RawMessage) error {
	return f.feed.Rewind(ctx, to.cursor, mark)
}

// Archive contains the events of archived tasks.
type Archive = feed.Archive
