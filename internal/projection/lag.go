package projection

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/lag.sql
var lagSQL string

// MaxLag is the highest number of events that a [Lag] counts.
const MaxLag = 10_000

// Lag is the distance between a projection and the ledger.
type Lag struct {
	Events int           // committed and not yet applied; at most MaxLag
	Oldest time.Time     // when the oldest of them was recorded; zero if Events is 0
	Age    time.Duration // of the oldest, by the database's clock
}

// ReadLag returns the lag of the built-in projection behind the events that are visible to db. If no
// projector ever ran, every event counts. The cost does not grow with the ledger.
func ReadLag(ctx context.Context, db ledger.DB) (Lag, error) {
	rows, err := db.Query(ctx, lagSQL, feed.ProjectorReader, int64(MaxLag))
	if err != nil {
		return Lag{}, pgerr.Explain("read lag", err)
	}
	lag, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (lag Lag, err error) {
		var micros int64
		if err := row.Scan(&lag.Events, pgquery.Micros(&lag.Oldest), &micros); err != nil {
			return lag, err
		}
		lag.Age = max(0, time.Duration(micros)*time.Microsecond)
		return lag, nil
	})
	return lag, pgerr.Explain("read lag", err)
}
