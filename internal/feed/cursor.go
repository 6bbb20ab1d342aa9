package feed

import (
	"context"
	_ "embed"
	"encoding/json"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/cursor_first.sql
	cursorFirstSQL string
	//go:embed sql/cursor_newest.sql
	cursorNewestSQL string
	//go:embed sql/cursor_append.sql
	cursorAppendSQL string
	//go:embed sql/cursor_renew.sql
	cursorRenewSQL string
	//go:embed sql/cursor_list.sql
	cursorListSQL string
	//go:embed sql/cursor_thin.sql
	cursorThinSQL string
	//go:embed sql/subscriber_thin.sql
	subscriberThinSQL string
	//go:embed sql/incarnation.sql
	incarnationSQL string
	//go:embed sql/cursor_owner.sql
	cursorOwnerSQL string
	//go:embed sql/crashed.sql
	crashedSQL string
	//go:embed sql/floor.sql
	floorSQL string
)

// Cursor is one row of taskledger.cursor: the place of a reader at some time. Rows are only appended; the row with the
// highest N is the current place of the reader.
type Cursor struct {
	N          int64           // 1, 2, 3…
	Mark       json.RawMessage // the reader's own note, given to Page.Advance
	RecordedAt time.Time

	place    place
	database database // when the row was read as the newest
}

// database identifies the database in which transaction IDs have their meaning.
type database struct {
	origin      string // of the cluster and the database: taskledger_internal.origin
	incarnation string // changes with each crash: taskledger.incarnation
	timeline    int64  // changes with each promotion: taskledger_internal.timeline
}

// Place returns the place of the reader.
func (c *Cursor) Place() Place { return c.place.Place }

// columns returns pointers to scan the columns of a row into; mark is nil for null.
func (c *Cursor) columns(mark **string) []any {
	return append([]any{&c.N}, append(c.place.Columns(),
		&c.place.unaudited.since, &c.place.unaudited.read.events, &c.place.unaudited.read.positions, mark,
		pgquery.Micros(&c.RecordedAt))...)
}

// newestCursor returns the newest row of reader, and appends the first row if reader has none. It returns an
// [*OriginError] if the row was written in another database, whose xids have no meaning here.
func newestCursor(ctx context.Context, db ledger.DB, reader string) (Cursor, error) {
	first, onlyLines := Beginning(), 0
	if reader == LineReader {
		onlyLines = 1
	}
	_, err := db.Exec(ctx, cursorFirstSQL, reader, first.Snapshot, int64(first.Top), first.Bound, onlyLines)
	if err != nil {
		if pgerr.Is(err, pgerr.ReadOnlySQLTransaction) {
			err = ErrNotPrimary
		}
		return Cursor{}, pgerr.Explain("open cursor "+reader, err)
	}
	c, found, err := readCursor(ctx, db, reader)
	if err == nil && c.database.incarnation == "" {
		if _, err := db.Exec(ctx, incarnationSQL); err != nil {
			return Cursor{}, pgerr.Explain("open cursor "+reader, err)
		}
		c, found, err = readCursor(ctx, db, reader) // read again: the row must exist in this incarnation
	}
	if err == nil && !found {
		err = pgerr.Explain("open cursor "+reader, pgx.ErrNoRows)
	}
	return c, err
}

// readCursor reads the newest row of reader and reports whether it exists.
func readCursor(ctx context.Context, db ledger.DB, reader string) (c Cursor, found bool, err error) {
	var mark *string
	var origin string
	var physical, isAhead bool
	found, err = pgquery.Row(ctx, db, cursorNewestSQL, []any{reader},
		append(c.columns(&mark), &origin, &c.database.origin, &physical, &c.database.incarnation,
			&c.database.timeline, &isAhead)...)
	switch {
	case err != nil:
		return Cursor{}, false, pgerr.Explain("read cursor "+reader, err)
	case found && origin != c.database.origin && !physical:
		return Cursor{}, true, &OriginError{Reader: reader, Found: origin, Want: c.database.origin}
	case found && isAhead:
		return Cursor{}, true, &OriginError{Reader: reader, Ahead: max(c.place.Seen.Top, c.place.Until.Top)}
	}
	c.setMark(mark)
	return c, found, nil
}

// CheckOrigin returns an [*OriginError] if the cursor of reader was written in another database, or if events came
// from another: its transaction ids have no meaning here. It returns a [*SequenceError] as well. [Open] returns the
// same errors. A reader without a cursor is valid. CheckOrigin changes nothing.
func CheckOrigin(ctx context.Context, db ledger.DB, reader string) error {
	if _, _, err := readCursor(ctx, db, reader); err != nil {
		return err
	}
	_, err := readFloor(ctx, db, reader)
	return err
}

// readFloor returns the last position of an event that was restored from another database; 0: no such event. It
// returns an [*OriginError] if such events exist above it, and a [*SequenceError].
func readFloor(ctx context.Context, db ledger.DB, reader string) (floor ledger.Position, err error) {
	var foreign *int64
	var origin string
	var cache, behind int64
	_, err = pgquery.Row(ctx, db, floorSQL, nil, (*int64)(&floor), &foreign, &origin, &cache, &behind)
	switch {
	case err != nil:
		return 0, pgerr.Explain("look for events of another database", err)
	case foreign != nil:
		return 0, &OriginError{Reader: reader, Position: ledger.Position(*foreign), Want: origin}
	case cache != 1 || behind != 0:
		return 0, &SequenceError{Cache: cache, Behind: ledger.Position(behind)}
	}
	return floor, nil
}

// appendCursor appends row n+1. It returns [ErrSuperseded] if n is not the newest row, and [ErrCrashed] if the
// incarnation of the database has changed. If isRelaxed is set, the commit does not wait for the disk.
func appendCursor(ctx context.Context, db ledger.DB, reader string, n int64, p place, mark json.RawMessage,
	in database, isRelaxed bool) error {
	var added, relaxed int64
	if isRelaxed {
		relaxed = 1
	}
	found, err := pgquery.Row(ctx, db, cursorAppendSQL, []any{
		reader, n, p.Seen.Snapshot, int64(p.Seen.Top), p.Seen.Bound,
		p.Until.Snapshot, int64(p.Until.Top), p.Until.Bound, int64(p.After), pgquery.JSON(mark), in.incarnation,
		p.unaudited.since, p.unaudited.read.events, p.unaudited.read.positions, in.origin, relaxed, in.timeline,
	}, &added)
	if err == nil && !found {
		err = superseded(ctx, db, reader, n, in)
	}
	return pgerr.Explain("advance cursor "+reader, err)
}

// renewCursor appends row n again. It returns the errors of appendCursor.
func renewCursor(ctx context.Context, db ledger.DB, reader string, n int64, in database) error {
	var added int64
	found, err := pgquery.Row(ctx, db, cursorRenewSQL, []any{reader, n, in.incarnation, in.origin, in.timeline}, &added)
	if err == nil && !found {
		err = superseded(ctx, db, reader, n, in)
	}
	return pgerr.Explain("renew cursor "+reader, err)
}

// superseded returns why no row could be appended to row n.
func superseded(ctx context.Context, db ledger.DB, reader string, n int64, in database) error {
	err := crashed(ctx, db, in.incarnation)
	if err == nil && isSubscriber(reader) {
		var none string
		_, err = pgquery.Row(ctx, db, cursorOwnerSQL, []any{reader, n}, &none)
	}
	if err == nil {
		err = ErrSuperseded
	}
	return err
}

// crashed returns [ErrCrashed] if the database is in another incarnation.
func crashed(ctx context.Context, db ledger.DB, incarnation string) error {
	var gone bool
	_, err := pgquery.Row(ctx, db, crashedSQL, []any{incarnation}, &gone)
	if err == nil && gone {
		err = ErrCrashed
	}
	return err
}

// listCursors returns the rows of reader with n below before, newest first.
func listCursors(ctx context.Context, db ledger.DB, reader string, before int64, limit int) ([]Cursor, error) {
	rows, err := db.Query(ctx, cursorListSQL, reader, before, int64(limit))
	if err != nil {
		return nil, pgerr.Explain("list cursors of "+reader, err)
	}
	defer rows.Close()
	var all []Cursor
	for rows.Next() {
		var c Cursor
		var mark *string
		if err := rows.Scan(c.columns(&mark)...); err != nil {
			return nil, pgerr.Explain("list cursors of "+reader, err)
		}
		c.setMark(mark)
		all = append(all, c)
	}
	return all, pgerr.Explain("list cursors of "+reader, rows.Err())
}

func (c *Cursor) setMark(mark *string) {
	c.RecordedAt = c.RecordedAt.UTC()
	if mark != nil {
		c.Mark = json.RawMessage(*mark)
	}
}

// thinner thins old cursor rows at intervals. It does not soon read the same rows again: while another transaction
// keeps a snapshot open, each pass would step over their dead index entries.
type thinner struct {
	keep    time.Duration
	due     time.Time // of the next thinning
	fullDue time.Time // of the next thinning that reads all rows
	above   int64
}

const (
	thinEvery     = 30 * time.Second
	thinFullEvery = 10 * time.Minute
)

func (t *thinner) run(ctx context.Context, db ledger.DB, reader string, now time.Time) error {
	if now.Before(t.due) {
		return nil
	}
	t.due = now.Add(thinEvery)
	if !now.Before(t.fullDue) {
		t.above, t.fullDue = 0, now.Add(thinFullEvery)
	}
	sql, args := cursorThinSQL, []any{reader, t.above, int64(math.Ceil(t.keep.Hours()))}
	if isSubscriber(reader) || reader == SealReader {
		sql, args = subscriberThinSQL, args[:2]
	}
	_, err := pgquery.Row(ctx, db, sql, args, &t.above)
	return pgerr.Explain("thin cursor "+reader, err)
}
