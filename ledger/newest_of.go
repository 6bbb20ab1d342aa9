package ledger

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/taskledger/taskledger/internal/pgarray"
)

var (
	//go:embed sql/history_end.sql
	historyEndSQL string
	//go:embed sql/newest_of.sql
	newestOfSQL string
	//go:embed sql/args_event.sql
	argsEventSQL string
)

// ArgsEvent returns the event that contains the args and meta of a task: the event that enqueued its last run, or
// replaced its args. It returns [ErrUnknownTask] if the task does not exist.
func ArgsEvent(ctx context.Context, db DB, k Key) (Event, error) {
	events, err := readHistory(ctx, db, k, argsEventSQL, string(k.Kind), string(k.BizID))
	if err != nil {
		return Event{}, err
	}
	return events[0], nil
}

// NewestOptions select events of [NewestOf].
type NewestOptions struct {
	Limit  int         // How many events are returned at most, at least 1.
	Before Version     // Only events before this version. Default: all.
	Types  []EventType // Default: all.
	// Contains is a text that the data must contain. Events of these types without it are read and skipped. It needs
	// Types. Default: any.
	Contains string
}

// NewestOf returns the newest events of a task, oldest first; none if the task does not exist. Without Contains, its
// cost does not depend on the number of other events. It returns an [*InvalidError] if Limit is less than 1.
func NewestOf(ctx context.Context, db DB, k Key, o NewestOptions) ([]Event, error) {
	if err := checkLimit(o.Limit); err != nil {
		return nil, fmt.Errorf("newest events of %s: %w", k, err)
	}
	before := int64(cmp.Or(o.Before, math.MaxInt32))
	kind, id := string(k.Kind), string(k.BizID)
	var events []Event
	var err error
	switch {
	case len(o.Types) > 0:
		types := pgarray.Of(o.Types...)
		events, err = readHistory(ctx, db, k, newestOfSQL, kind, id, types, before, int64(o.Limit), o.Contains)
	default:
		events, err = readHistory(ctx, db, k, historyEndSQL, kind, id, before, int64(o.Limit))
	}
	if errors.Is(err, ErrUnknownTask) {
		return nil, nil
	}
	return events, err
}
