package projector

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/oldest_waiting.sql
var oldestWaitingSQL string

// maxOldest is the number of unfinished tasks among which the oldest of each kind is found.
const maxOldest = 1000

// ReadOldestWaiting returns when the oldest available task of each kind became available, among the 1,000 oldest
// unfinished tasks. A task of the last half minute may be missing. It never commits.
func ReadOldestWaiting(ctx context.Context, db ledger.DB) (map[ledger.Kind]time.Time, error) {
	rows, err := db.Query(ctx, oldestWaitingSQL, int64(maxOldest))
	if err != nil {
		return nil, pgerr.Explain("read the oldest tasks", err)
	}
	defer rows.Close()
	oldest := make(map[ledger.Kind]time.Time)
	for rows.Next() {
		var kind ledger.Kind
		var at time.Time
		if err := rows.Scan((*string)(&kind), pgquery.Micros(&at)); err != nil {
			return nil, pgerr.Explain("read the oldest tasks", err)
		}
		oldest[kind] = at
	}
	return oldest, pgerr.Explain("read the oldest tasks", rows.Err())
}
