package projector

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/oldest.sql
var oldestSQL string

// maxOldest is the number of unfinished tasks among which the oldest of each kind is found.
const maxOldest = 1000

// ReadOldest returns when the oldest available task of each kind became available, and when the running task without
// news for the longest time had its last event, among the 1,000 oldest unfinished tasks. A task of the last half minute
// may be missing. It never commits.
func ReadOldest(ctx context.Context, db ledger.DB) (waiting, running map[ledger.Kind]time.Time, err error) {
	rows, err := db.Query(ctx, oldestSQL, int64(maxOldest))
	if err != nil {
		return nil, nil, pgerr.Explain("read the oldest tasks", err)
	}
	defer rows.Close()
	waiting, running = make(map[ledger.Kind]time.Time), make(map[ledger.Kind]time.Time)
	for rows.Next() {
		var kind ledger.Kind
		var isRunning bool
		var at time.Time
		if err := rows.Scan((*string)(&kind), &isRunning, pgquery.Micros(&at)); err != nil {
			return nil, nil, pgerr.Explain("read the oldest tasks", err)
		}
		if isRunning {
			running[kind] = at
		} else {
			waiting[kind] = at
		}
	}
	return waiting, running, pgerr.Explain("read the oldest tasks", rows.Err())
}
