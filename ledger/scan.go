package ledger

import (
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgquery"
)

// scanEvents returns the events of a query: see package eventrows, which is the same for other packages.
func scanEvents(rows pgx.Rows, before ...any) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer rows.Close()
		var e Event
		columns := append(before,
			(*int64)(&e.Position), (*int32)(&e.Version), (*int32)(&e.Attempt), (*int)(&e.Shard), (*eventType)(&e.Type),
			pgquery.Micros(&e.RecordedAt), (*pgquery.Repeated)(&e.Kind), (*string)(&e.BizID),
			(*pgquery.Repeated)(&e.Actor), (*pgquery.Repeated)(&e.Login),
			&e.DataVersion, (*int)(&e.Priority), (*pgquery.Repeated)(&e.Partition), &e.Run,
			(*pgquery.Repeated)(&e.OrderKey), (*[]byte)(&e.Data), (*[]byte)(&e.Meta))
		for rows.Next() {
			e.Data, e.Meta = nil, nil // the previous event owns the bytes that were scanned into them
			if err := rows.Scan(columns...); err != nil {
				yield(Event{}, err)
				return
			}
			current, err := Upcast(e)
			if err != nil {
				yield(Event{}, err)
				return
			}
			if !yield(current, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Event{}, err)
		}
	}
}

// eventType is the type of an event. Scanning the most frequent types allocates nothing.
type eventType string

// ScanBytes is Scan for pgx.
func (t *eventType) ScanBytes(text []byte) error {
	switch string(text) {
	case string(EventEnqueued):
		*t = eventType(EventEnqueued)
	case string(EventSucceeded):
		*t = eventType(EventSucceeded)
	default:
		return (*pgquery.Repeated)(t).ScanBytes(text)
	}
	return nil
}
