package operator

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/stopped_lines.sql
var stoppedLinesSQL string

// maxStoppedLines is the greatest number of lines that [ReadStoppedLines] returns.
const maxStoppedLines = 100

// StoppedLine is a line whose task is dead, so that none of its other tasks begins.
type StoppedLine struct {
	OrderKey string     `json:"order_key"`
	Key      ledger.Key `json:"key"`   // of the dead task
	Since    time.Time  `json:"since"` // when it died
}

// ReadStoppedLines returns the lines that stand because of a dead task, the newest first, at most 100. hasMore reports
// that there may be others: more than these, or more than 10,000 dead tasks to examine. It never commits.
// Errors: [ledger.ErrNotMigrated].
func ReadStoppedLines(ctx context.Context, db ledger.DB) (all []StoppedLine, hasMore bool, err error) {
	rows, err := db.Query(ctx, stoppedLinesSQL, int64(maxStoppedLines+1))
	if err != nil {
		return nil, false, pgerr.Explain("read stopped lines", err)
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l StoppedLine, err error) {
		return l, row.Scan(&l.OrderKey, (*string)(&l.Key.Kind), (*string)(&l.Key.BizID), pgquery.Micros(&l.Since),
			&hasMore)
	})
	if len(all) > maxStoppedLines {
		all, hasMore = all[:maxStoppedLines], true
	}
	return all, hasMore, pgerr.Explain("read stopped lines", err)
}
