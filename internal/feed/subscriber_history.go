package feed

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/subscriber_history.sql
var subscriberHistorySQL string

// maxHistoryRows is the greatest number of cursor rows that [SubscriberHistory] reads. A busy subscriber writes them in
// some minutes, others in an hour.
const maxHistoryRows = 8000

// SubscriberPoint is how far a subscriber and the events were at a time. subscribers.Point has the same fields,
// and describes them.
type SubscriberPoint struct{ Position, Newest ledger.Position }

// SubscriberHistory returns the points of a subscriber at the ends of steps of time, the oldest first; the last one is
// now. Its cost does not grow with the ledger.
func SubscriberHistory(
	ctx context.Context, db ledger.DB, name string, step time.Duration, steps int,
) ([]SubscriberPoint, error) {
	reader, err := SubscriberReader(name)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, subscriberHistorySQL, reader, int64(step/time.Second), int64(steps),
		int64(maxHistoryRows))
	if err != nil {
		return nil, pgerr.Explain("read the history of a subscriber", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p SubscriberPoint, err error) {
		err = row.Scan((*int64)(&p.Position), (*int64)(&p.Newest))
		return p, err
	})
	return all, pgerr.Explain("read the history of a subscriber", err)
}
