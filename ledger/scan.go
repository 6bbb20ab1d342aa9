package ledger

import (
	"iter"

	"github.com/jackc/pgx/v5"
)

// EventColumns are the columns of table taskledger.event that [ScanEvents] expects, in its order.
const EventColumns = "position, version, attempt, shard, type, recorded_at, kind, biz_id, actor, data, meta"

// ScanEvents returns the events of a query that selects [EventColumns], and closes rows when the loop
// ends. Columns that are selected before them are scanned into before, anew for each event. An error
// is the last pair.
func ScanEvents(rows pgx.Rows, before ...any) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer rows.Close()
		var e Event
		columns := append(before, (*int64)(&e.Position), (*int32)(&e.Version), (*int32)(&e.Attempt), (*int)(&e.Shard), (*string)(&e.Type),
			&e.RecordedAt, (*string)(&e.Kind), (*string)(&e.BizID), &e.Actor, (*[]byte)(&e.Data), (*[]byte)(&e.Meta))
		for rows.Next() {
			e.Data, e.Meta = nil, nil // the event before owns what was scanned into them
			if err := rows.Scan(columns...); err != nil {
				yield(Event{}, err)
				return
			}
			e.RecordedAt = e.RecordedAt.UTC()
			if !yield(e, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Event{}, err)
		}
	}
}
