package projector

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/list_line.sql
var listLineSQL string

// firstWalk is how many events of a line the first statement reads. Each further one reads four times as many.
const firstWalk = 100

// readLine returns the tasks with f.OrderKey, the last lined up first. The projection contains no order keys: the
// ledger's own indexes contain the places of the line.
func (f TaskFilter) readLine(ctx context.Context, db ledger.DB) (
	found []ledger.ListedTask, next ledger.Position, err error,
) {
	left, limit := min(f.Walk, max(1, maxWalk/10)), f.Limit
	for walk := max(firstWalk, f.Limit); ; walk *= 4 {
		walk = min(walk, left)
		f.Limit = limit - len(found)
		page, place, err := f.readPlaces(ctx, db, walk)
		if err != nil {
			return nil, 0, pgerr.Explain("read tasks", err)
		}
		found, left = append(found, page...), left-walk
		if place == 0 || len(found) == limit || left == 0 {
			return found, place, nil
		}
		f.StartAfter = place
	}
}

// readPlaces returns the tasks at the next places of a line, and the place that it has reached, or 0 at the end.
func (f TaskFilter) readPlaces(ctx context.Context, db ledger.DB, walk int) (
	page []ledger.ListedTask, place ledger.Position, err error,
) {
	rows, err := db.Query(ctx, listLineSQL, append(f.args(f.tagPattern()), int64(walk), f.OrderKey)...)
	if err != nil {
		return nil, 0, err
	}
	page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t ledger.ListedTask, err error) {
		err = row.Scan(append(columnsOf(&t), (*int64)(&place))...)
		t.OrderKey = f.OrderKey
		return t, err
	})
	switch n := len(page); {
	case err != nil:
		return nil, 0, err
	case n > 0 && page[n-1].Version == 0: // not a task
		return page[:n-1], place, nil
	case n == f.Limit:
		return page, place, nil
	}
	return page, 0, nil
}
