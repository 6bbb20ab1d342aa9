package alarm

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/now.sql
var nowSQL string

// readClock returns the time of the database and the id of the installation.
func readClock(ctx context.Context, db ledger.DB) (now time.Time, installation string, err error) {
	_, err = pgquery.Row(ctx, db, nowSQL, nil, pgquery.Micros(&now), &installation)
	return now, installation, pgerr.Explain("read the clock", err)
}
