package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/newest.sql
	newestSQL string
	//go:embed sql/stats.sql
	statsSQL string
)

// Newest returns the limit events with the highest positions that match the filters of r, oldest first. It ignores the
// moments of r. It reads back from the end of the ledger until it has found them.
func Newest(ctx context.Context, db DB, r Range, limit int) ([]Event, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("newest events: %w", err)
	}
	var all []Event
	for before := int64(math.MaxInt64); limit > 0; {
		rows, err := db.Query(ctx, newestSQL, append([]any{before, int64(replayPage)}, r.filterArgs()...)...)
		if err != nil {
			return nil, pgerr.Explain("newest events", err)
		}
		var isEnd, matches bool
		for e, err := range ScanEvents(rows, &isEnd, &matches) {
			if err != nil {
				return nil, pgerr.Explain("newest events", err)
			}
			if before = int64(e.Position); e.Position <= r.After {
				isEnd = false
				break
			}
			if matches {
				all = append(all, e)
			}
			if len(all) == limit {
				break
			}
		}
		if !isEnd || len(all) == limit {
			break
		}
	}
	slices.Reverse(all)
	return all, nil
}

// Matches reports whether an event matches the filters of r. It ignores the moments of r.
func (r Range) Matches(e Event) bool {
	return e.Position > r.After && (len(r.Kinds) == 0 || slices.Contains(r.Kinds, e.Kind)) &&
		(len(r.Types) == 0 || slices.Contains(r.Types, e.Type)) &&
		(r.Actor == "" || e.Actor == r.Actor) && strings.HasPrefix(e.Key.String(), r.Prefix)
}

// EventStat counts the events of one kind and type in a [Range].
type EventStat struct {
	Kind   Kind      `json:"kind"`
	Type   EventType `json:"type"`
	Events int64     `json:"events"`
	Bytes  int64     `json:"bytes"` // of data and meta
	First  time.Time `json:"first"` // the lowest RecordedAt
	Last   time.Time `json:"last"`  // the highest RecordedAt
}

// Stats counts the events of a range, ordered by kind and type. It reads all events up to the end
// of the range. Its errors are those of [Replay].
func Stats(ctx context.Context, db DB, r Range) ([]EventStat, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	r, err := r.withMoments(ctx, db)
	if err != nil {
		return nil, err
	}
	args := []any{r.From.seen, pgquery.Optional(r.From.until), int64(r.From.after),
		r.To.seen, r.To.until, int64(r.To.after), int64(r.To.top)}
	args = append(append(args, r.filterArgs()...), int64(r.After))
	rows, err := db.Query(ctx, statsSQL, args...)
	if err != nil {
		return nil, pgerr.Explain("stats", err)
	}
	defer rows.Close()
	var all []EventStat
	for rows.Next() {
		var s EventStat
		if err := rows.Scan((*string)(&s.Kind), (*string)(&s.Type), &s.Events, &s.Bytes, pgquery.Micros(&s.First),
			pgquery.Micros(&s.Last)); err != nil {
			return nil, pgerr.Explain("stats", err)
		}
		all = append(all, s)
	}
	return all, pgerr.Explain("stats", rows.Err())
}
