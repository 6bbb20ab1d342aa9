package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"iter"
	"math"

	"github.com/taskledger/taskledger/internal/pgerr"
)

var (
	//go:embed sql/history.sql
	historySQL string
	//go:embed sql/read.sql
	readSQL string
)

// History returns all events of a task in db's snapshot, version 1 first. As of a moment, a task has the events up to
// [VersionAsOf]. It returns [ErrUnknownTask] if the task does not exist, and the [*InvalidError] of
// [Key.ValidateStored].
func History(ctx context.Context, db DB, k Key) ([]Event, error) {
	return readHistory(ctx, db, k, historySQL, string(k.Kind), string(k.BizID))
}

// readHistory returns the events of a task that a statement reads.
func readHistory(ctx context.Context, db DB, k Key, statement string, args ...any) ([]Event, error) {
	if err := k.ValidateStored(); err != nil {
		return nil, fmt.Errorf("history of %s: %w", k, err)
	}
	rows, err := db.Query(ctx, statement, args...)
	if err != nil {
		return nil, pgerr.Explain("history of "+k.String(), err)
	}
	var events []Event
	for e, err := range scanEvents(rows) {
		if err != nil {
			return nil, pgerr.Explain("history of "+k.String(), err)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, unknownTask(ctx, db, k)
	}
	return events, nil
}

// Read returns at most limit events after a position, in position order, from db's snapshot. The loop may
// break; db is in use until it ends. An error is the last pair; it is an [*InvalidError] if limit is less than 1.
//
// Read shows a part of the ledger and is no feed: transactions commit out of position order, so a reader that
// continues after the last position skips events. Package ledger/feed reads every event.
func Read(ctx context.Context, db DB, after Position, limit int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := checkLimit(limit); err != nil {
			yield(Event{}, fmt.Errorf("read events: %w", err))
			return
		}
		rows, err := db.Query(ctx, readSQL, int64(after), int64(min(limit, math.MaxInt32)))
		if err != nil {
			yield(Event{}, pgerr.Explain("read events", err))
			return
		}
		for e, err := range scanEvents(rows) {
			if !yield(e, pgerr.Explain("read events", err)) {
				return
			}
		}
	}
}
