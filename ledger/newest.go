package ledger

import (
	"context"
	_ "embed"
	"errors"
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

// BackOptions are the options of [ReadBack].
type BackOptions struct {
	Before Position // Only events with a lower position. Default: all.
	Limit  int      // How many events are returned at most, at least 1.
	Walk   int      // How many events are read at most, whether they match or not. Default: no limit.
}

// validate returns an error for invalid options.
func (o BackOptions) validate() error {
	switch {
	case o.Before < 0:
		return &InvalidError{Field: "before", Value: fmt.Sprint(int64(o.Before)), Rule: "must not be negative"}
	case o.Walk < 0:
		return &InvalidError{Field: "walk", Value: fmt.Sprint(o.Walk), Rule: "must not be negative"}
	}
	return checkLimit(o.Limit)
}

// checkLimit duplicates lists.CheckLimit of package internal/lists, which imports this package.
func checkLimit(limit int) error {
	if limit < 1 {
		return &InvalidError{Field: "limit", Value: fmt.Sprint(limit), Rule: "must be at least 1"}
	}
	return nil
}

// ReadBack returns the events with the highest positions that match the filters of r, newest first. It ignores the
// moments of r. To read on, set Before to next; 0: there are no more events. Because of Walk, it may return no events
// and a next. It never commits.
//
// Errors: [*InvalidError] for o or from [Range.Validate], [ErrNotMigrated], or errors of the database.
func ReadBack(ctx context.Context, db DB, r Range, o BackOptions) (all []Event, next Position, err error) {
	if err := errors.Join(r.Validate(), o.validate()); err != nil {
		return nil, 0, fmt.Errorf("newest events: %w", err)
	}
	before, left := int64(o.Before), int64(o.Walk)
	if before == 0 {
		before = math.MaxInt64
	}
	if o.Walk == 0 {
		left = math.MaxInt64
	}
	for left > 0 && len(all) < o.Limit {
		n := min(left, replayPage)
		rows, err := db.Query(ctx, newestSQL, append([]any{before, n}, r.filterArgs()...)...)
		if err != nil {
			return nil, 0, pgerr.Explain("newest events", err)
		}
		var isEnd, matches bool // the last event of a page, even if it does not match
		for e, err := range scanEvents(rows, &isEnd, &matches) {
			if err != nil {
				return nil, 0, pgerr.Explain("newest events", err)
			}
			if e.Position <= r.StartAfter {
				return all, 0, nil
			}
			before = int64(e.Position)
			if matches {
				all = append(all, e)
			}
			if len(all) == o.Limit {
				return all, e.Position, nil
			}
		}
		if !isEnd {
			return all, 0, nil
		}
		left -= n
	}
	return all, Position(before), nil
}

// Matches reports whether an event matches the filters of r. It ignores the moments of r.
func (r Range) Matches(e Event) bool {
	return e.Position > r.StartAfter && (len(r.Kinds) == 0 || slices.Contains(r.Kinds, e.Kind)) &&
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

// Stats counts the events of a range, ordered by kind and type. It reads all events up to the end of the range. It
// returns the errors of [Events].
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
	args = append(append(args, r.filterArgs()...), int64(r.StartAfter))
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
