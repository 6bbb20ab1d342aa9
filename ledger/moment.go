package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/moment_at.sql
	momentAtSQL string
	//go:embed sql/moment_of.sql
	momentOfSQL string
)

// Moment is a place in the history of the ledger, in the order of commits. It separates the events that were committed
// before it from all others, for good: an event that a transaction recorded earlier and committed later is after it.
// It never separates a version of a task from earlier versions.
//
// The zero value is the present, or where a [Range] begins, the time before the first event. A Moment may be copied,
// and is valid for its database alone.
//
// About every second, the services of taskledger record the visible events. Between two records, or while no service
// runs, events count in the order of their positions and as of their RecordedAt, the time of the
// insert and not of the commit. So a time of the last second may gain events until the next record. In a database that
// was restored from a dump, this is so for all events before the restore.
type Moment struct {
	at       time.Time // as requested, or zero
	position Position  // of the event, or 0

	// The events visible in seen, and the events visible in until up to after: the columns of a cursor.
	seen, seenBound, until string
	seenTop, top, after    Position
}

// columns returns pointers to scan the columns of a place into.
func (m *Moment) columns() []any {
	return []any{&m.seen, (*int64)(&m.seenTop), &m.seenBound, &m.until, (*int64)(&m.top), (*int64)(&m.after)}
}

// passedArgs returns the arguments with which a statement calls taskledger_internal.feed_passed.
func (m Moment) passedArgs() []any { return []any{m.seen, m.until, int64(m.after)} }

// IsZero reports whether m is the zero value.
func (m Moment) IsZero() bool { return m == Moment{} }

// String returns the time or the position of m, such as "2026-11-22T10:00:00Z" or "position 17". The zero value is
// "now".
func (m Moment) String() string {
	switch {
	case !m.at.IsZero():
		return m.at.UTC().Format(time.RFC3339Nano)
	case m.position != 0:
		return "position " + strconv.FormatInt(int64(m.position), 10)
	}
	return "now"
}

// MarshalJSON returns an object with the time or the position of m, {} for the zero value.
func (m Moment) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Time     time.Time `json:"time,omitzero"`
		Position Position  `json:"position,omitempty"`
	}{m.at.UTC(), m.position})
}

// MomentAt returns the moment of a time of the database's clock, in microseconds: after all events committed by then.
// It returns an [*InvalidError] if the time is in the future, or before the first event.
//
// On a standby it returns an error for a time after the last record of the visible events: connect to the primary.
func MomentAt(ctx context.Context, db DB, at time.Time) (Moment, error) {
	m, first, _, err := momentAt(ctx, db, at)
	invalid := invalidTime(at)
	switch {
	case err != nil:
		return Moment{}, err
	case first.IsZero():
		invalid.Rule = "the ledger contains no events"
	case at.Before(first):
		invalid.Rule = "must not be before the first event, of " + first.Format(time.RFC3339Nano)
	default:
		return m, nil
	}
	return Moment{}, invalid
}

// MomentFrom returns the moment of a time for the beginning of a [Range]: as [MomentAt] does, and the zero value for a
// time before the first event. It returns an [*InvalidError] if the time is in the future. For a standby see
// [MomentAt].
func MomentFrom(ctx context.Context, db DB, at time.Time) (Moment, error) {
	m, first, mayHaveEarlier, err := momentAt(ctx, db, at)
	if err != nil || !mayHaveEarlier && (first.IsZero() || at.Before(first)) {
		return Moment{}, err
	}
	return m, nil
}

// momentAt returns the moment of a time, when the first event was recorded, the zero time without events, and whether
// earlier events may be archived.
func momentAt(ctx context.Context, db DB, at time.Time) (m Moment, first time.Time, mayHaveEarlier bool, err error) {
	m = Moment{at: at}
	var isFuture bool
	args := []any{withinMicros(at).UnixMicro()}
	columns := append(m.columns(), &isFuture, pgquery.Micros(&first), &mayHaveEarlier)
	if _, err := pgquery.Row(ctx, db, momentAtSQL, args, columns...); err != nil {
		return Moment{}, first, false, pgerr.Explain("moment "+at.UTC().Format(time.RFC3339Nano), err)
	}
	if isFuture {
		invalid := invalidTime(at)
		invalid.Rule = "must not be in the future"
		return Moment{}, first, false, invalid
	}
	return m, first, mayHaveEarlier, nil
}

func invalidTime(at time.Time) *InvalidError {
	return &InvalidError{Field: "time", Value: at.Format(time.RFC3339Nano)}
}

// withinMicros returns t, or the nearest time that PostgreSQL and [time.Time.UnixMicro] can represent.
func withinMicros(t time.Time) time.Time {
	first, last := time.Unix(0, 0), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	switch {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
}

// MomentOf returns the moment after an event. It returns [ErrUnknownPosition] if no event has this position. The moment
// of an archived event is after those with positions up to its own. For a standby see [MomentAt].
func MomentOf(ctx context.Context, db DB, p Position) (Moment, error) {
	m := Moment{position: p}
	var seen, bound, until *string
	var seenTop, top, after *int64
	var before, next, archivedUntil Position
	var present string
	_, err := pgquery.Row(ctx, db, momentOfSQL, []any{int64(p)}, &seen, &seenTop, &bound, &until, &top, &after,
		(*int64)(&before), (*int64)(&next), (*int64)(&archivedUntil), &present)
	switch {
	case err != nil:
		return Moment{}, pgerr.Explain(fmt.Sprintf("moment of position %d", p), err)
	case seen == nil && p > 0 && p <= archivedUntil:
		m.seen, m.seenBound, m.until, m.top, m.after = "3:3:", "3", present, p, p
		return m, nil
	case seen == nil:
		return Moment{}, fmt.Errorf("%w: %d; the nearest events are at %s", ErrUnknownPosition, p,
			nearest(before, next))
	}
	m.seen, m.seenBound, m.until = *seen, *bound, *until
	m.seenTop, m.top, m.after = Position(*seenTop), Position(*top), Position(*after)
	return m, nil
}

// MomentBefore returns the moment before an event. It returns the errors of [MomentOf].
func MomentBefore(ctx context.Context, db DB, p Position) (Moment, error) {
	m, err := MomentOf(ctx, db, p)
	if err == nil {
		m.after--
	}
	return m, err
}

// nearest lists the positions before and after a position without an event.
func nearest(before, next Position) string {
	switch {
	case before == 0 && next == 0:
		return "no position, since the ledger is empty"
	case before == 0:
		return fmt.Sprintf("position %d", next)
	case next == 0:
		return fmt.Sprintf("position %d", before)
	}
	return fmt.Sprintf("positions %d and %d", before, next)
}
