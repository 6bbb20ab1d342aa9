package feed

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/cursor_hold.sql
	cursorHoldSQL string
	//go:embed sql/cursor_restart.sql
	cursorRestartSQL string
	//go:embed sql/cursor_claim.sql
	cursorClaimSQL string
	//go:embed sql/cursor_take.sql
	cursorTakeSQL string
	//go:embed sql/cursor_forget.sql
	cursorForgetSQL string
	//go:embed sql/passed.sql
	passedSQL string
)

// Hold locks the cursor of a reader until the end of tx, which must be READ COMMITTED. It waits for the page under
// way, and the reader waits before its next page. A window that is opened afterwards ends after every event that the
// reader has passed. It does not commit.
func Hold(ctx context.Context, tx pgx.Tx, reader string) error {
	_, err := hold(ctx, tx, reader)
	return err
}

// hold is [Hold]; it returns n of the newest row, 0 without a cursor.
func hold(ctx context.Context, tx pgx.Tx, reader string) (n int64, err error) {
	// A page under way appends a row after the locked row. Once the newest row is locked, no row follows it.
	for {
		locked := n
		found, err := pgquery.Row(ctx, tx, cursorHoldSQL, []any{reader}, &n)
		if err != nil || !found || n == locked {
			return n, pgerr.Explain("hold cursor "+reader, err)
		}
	}
}

// Claim makes tx the only transaction that works under the name of a reader, until its end. It reports false if
// another transaction does so, or if the snapshot of tx sees no cursor of the reader. Pages of the reader are not
// affected.
func Claim(ctx context.Context, tx pgx.Tx, reader string) (bool, error) {
	var n int64
	found, err := pgquery.Row(ctx, tx, cursorClaimSQL, []any{reader}, &n)
	if pgerr.Is(err, pgerr.SerializationFailure) { // the rows are gone
		return false, nil
	}
	return found, pgerr.Explain("claim cursor "+reader, err)
}

// Restart moves f to the first event. A process that opened the feed earlier gets [ErrSuperseded], however late it
// continues. tx must be READ COMMITTED; if it does not commit, open the feed again.
//
// Errors: [ErrSuperseded], if another process has advanced the cursor.
func (f *Feed) Restart(ctx context.Context, tx pgx.Tx, mark json.RawMessage) error {
	newest, err := hold(ctx, tx, f.reader)
	if err == nil && newest != f.n {
		err = ErrSuperseded
	}
	if err != nil {
		return pgerr.Explain("restart cursor "+f.reader, err)
	}
	first := place{Place: Place{Window: Window{Seen: Beginning()}}}
	_, err = pgquery.Row(ctx, tx, cursorRestartSQL, []any{
		f.reader, newest, first.Seen.Snapshot, int64(first.Seen.Top), first.Seen.Bound, pgquery.JSON(mark),
	}, &f.n)
	f.move(first)
	return pgerr.Explain("restart cursor "+f.reader, err)
}

// Take moves the cursor of a reader to the place of another reader, with a mark. A subscriber keeps its mark and its
// login. A process that works as reader gets
// [ErrSuperseded]. It does not commit. Call [Hold] first, in the same transaction.
func Take(ctx context.Context, tx pgx.Tx, reader, from string, mark json.RawMessage) error {
	var n int64
	found, err := pgquery.Row(ctx, tx, cursorTakeSQL, []any{reader, from, pgquery.JSON(mark)}, &n)
	if err == nil && !found {
		err = pgx.ErrNoRows
	}
	return pgerr.Explain("move cursor "+reader, err)
}

// Forget removes the cursor of a reader, which begins again at the first event. It does not commit.
func Forget(ctx context.Context, db ledger.DB, reader string) error {
	_, err := db.Exec(ctx, cursorForgetSQL, reader)
	return pgerr.Explain("remove cursor "+reader, err)
}

// Passed reports whether a reader has passed the event at a position, and whether db sees such an event. It never
// commits, and its cost does not grow with the ledger.
func Passed(ctx context.Context, db ledger.DB, reader string, p ledger.Position) (passed, found bool, err error) {
	found, err = pgquery.Row(ctx, db, passedSQL, []any{reader, int64(p)}, &passed)
	return passed, found, pgerr.Explain("read cursor "+reader, err)
}

// The interval at which AwaitPassed polls.
const (
	firstPoll = 2 * time.Millisecond
	maxPoll   = 50 * time.Millisecond
)

// AwaitPassed waits until a reader has passed the event at a position. Errors: the error of ctx,
// [ledger.ErrUnknownPosition], [ledger.ErrNotMigrated].
func AwaitPassed(ctx context.Context, db ledger.DB, reader string, p ledger.Position) error {
	for poll := firstPoll; ; poll = min(2*poll, maxPoll) {
		passed, found, err := Passed(ctx, db, reader, p)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("%w: %d", ledger.ErrUnknownPosition, p)
		case passed:
			return nil
		}
		if err := loop.Sleep(ctx, poll); err != nil {
			return fmt.Errorf("position %d: %w", p, err)
		}
	}
}

// PlaceOf returns the place of a reader as db sees it, and false without a cursor. If db is a transaction whose
// snapshot does not change, that place covers everything that the reader wrote and the transaction sees. It never
// commits.
//
// Errors: [*OriginError].
func PlaceOf(ctx context.Context, db ledger.DB, reader string) (Place, bool, error) {
	c, found, err := readCursor(ctx, db, reader)
	return c.Place(), found, err
}
