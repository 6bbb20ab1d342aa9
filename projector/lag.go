package projector

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/lag.sql
var lagSQL string

// MaxLag is how far the events of a [Lag] are counted.
const MaxLag = 10_000

// Lag is how far a projection is behind the ledger.
type Lag struct {
	Events int           // committed and not yet applied; MaxLag if there are that many or more
	Oldest time.Time     // when the oldest of them was recorded; zero if there are none
	Age    time.Duration // of the oldest, by the database's clock
}

// ReadLag returns how far the built-in projection is behind the events that db sees. If no projector ever ran, it is
// behind by all of them. The cost does not grow with the ledger.
func ReadLag(ctx context.Context, db ledger.DB) (Lag, error) {
	rows, err := db.Query(ctx, lagSQL, Reader, int64(MaxLag))
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
