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

var (
	//go:embed sql/oldest.sql
	oldestSQL string
	//go:embed sql/silent.sql
	silentSQL string
)

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

// Silent is the running tasks of a worker without news.
type Silent struct {
	Worker string    // the actor of their last event
	Tasks  int64     // how many
	Since  time.Time // the last event of the task without news for the longest time
}

// ReadSilent returns the running tasks of a kind whose last event is as old as a time or older, by worker, the longest
// silence first. It reads as many tasks as [ReadOldest]. It never commits.
func ReadSilent(ctx context.Context, db ledger.DB, k ledger.Kind, until time.Time) ([]Silent, error) {
	rows, err := db.Query(ctx, silentSQL, int64(maxOldest), string(k), pgquery.Time(until))
	if err != nil {
		return nil, pgerr.Explain("read silent tasks", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Silent, err error) {
		err = row.Scan(&s.Worker, &s.Tasks, pgquery.Micros(&s.Since))
		return s, err
	})
	return all, pgerr.Explain("read silent tasks", err)
}
