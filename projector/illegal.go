package projector

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/illegal_add.sql
	illegalAddSQL string
	//go:embed sql/illegal.sql
	illegalSQL string
)

// MaxIllegal is the highest number of events that [Illegal] counts.
const MaxIllegal = 10_000

// Illegal is the number of events that cannot follow those before them, as the projector found them.
type Illegal struct {
	Events int       // at most MaxIllegal
	Since  time.Time // when the first one was found; zero if Events is 0
	Last   string    // the last one, and why it is illegal
}

// ReadIllegal returns the illegal events that are recorded in taskledger.illegal_event. An operator removes its rows.
// It never commits.
func ReadIllegal(ctx context.Context, db ledger.DB) (i Illegal, err error) {
	_, err = pgquery.Row(ctx, db, illegalSQL, []any{int64(MaxIllegal)}, &i.Events, pgquery.Micros(&i.Since), &i.Last)
	return i, pgerr.Explain("read illegal events", err)
}

// addIllegal records an error of [ledger.Fold] in the transaction of a page.
func addIllegal(ctx context.Context, tx pgx.Tx, k ledger.Key, err error) error {
	var version ledger.Version
	var illegal *ledger.IllegalError
	if errors.As(err, &illegal) {
		version = illegal.Event.Version
	}
	_, err = tx.Exec(ctx, illegalAddSQL, string(k.Kind), string(k.BizID), int64(version), err.Error())
	return pgerr.Explain("record an illegal event", err)
}
