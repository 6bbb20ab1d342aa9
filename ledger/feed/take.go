package feed

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/cursor_hold.sql
	cursorHoldSQL string
	//go:embed sql/cursor_take.sql
	cursorTakeSQL string
	//go:embed sql/cursor_forget.sql
	cursorForgetSQL string
	//go:embed sql/passed.sql
	passedSQL string
)

// Hold locks the cursor of a reader until the end of tx: the reader waits before its next page. A window that is opened
// afterwards ends after every event that the reader has passed. It does not commit.
func Hold(ctx context.Context, tx pgx.Tx, reader string) error {
	var n int64
	_, err := pgquery.Row(ctx, tx, cursorHoldSQL, []any{reader}, &n)
	return pgerr.Explain("hold cursor "+reader, err)
}

// Take moves the cursor of a reader to the place of another reader. A process that works as reader gets
// [ErrSuperseded]. It does not commit. Call [Hold] before in the same transaction.
func Take(ctx context.Context, tx pgx.Tx, reader, from string) error {
	var n int64
	found, err := pgquery.Row(ctx, tx, cursorTakeSQL, []any{reader, from}, &n)
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

// PlaceOf returns the place of a reader as db sees it, and false if it has no cursor. With a transaction whose snapshot
// does not change, that is the place of everything which the reader wrote and the transaction sees. It never commits.
//
// Errors: [*OriginError].
func PlaceOf(ctx context.Context, db ledger.DB, reader string) (Place, bool, error) {
	c, found, err := readCursor(ctx, db, reader)
	return c.Place(), found, err
}
