package ledger

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/unexported"
)

var (
	//go:embed sql/present.sql
	presentSQL string
	//go:embed sql/replay.sql
	replaySQL string
	//go:embed sql/login_name.sql
	loginNameSQL string
)

// Range is a part of the ledger: the events committed after one moment and up to another that match all filters. The
// zero value contains all events.
type Range struct {
	From Moment // Default: the time before the first event.
	To   Moment // Default: the present when the call begins.

	// StartAfter continues a read of the same range: only events with a higher position. Default: all.
	StartAfter Position

	Kinds  []Kind      // Default: all kinds.
	Types  []EventType // Default: all types.
	Actor  string      // Default: all actors.
	Prefix string      // of the key as kind/biz_id, see [Key.String]. Default: all keys.

	archived archivedEvents // nil: archived events are left out
}

// archivedEvents returns the next archived events of a range, and whether others follow.
type archivedEvents func(context.Context, DB, unexported.ArchivedRange) (events []Event, more bool, err error)

func init() {
	unexported.SetArchive = func(rangeOf, archive any) {
		rangeOf.(*Range).archived = archive.(func(context.Context, DB, unexported.ArchivedRange) ([]Event, bool, error))
	}
}

// Validate returns nil, or an [*InvalidError] that names the invalid filter.
func (r Range) Validate() error {
	for _, k := range r.Kinds {
		if k == "" {
			return &InvalidError{Field: "kind", Rule: "must not be empty"}
		}
		if err := k.ValidateStored(); err != nil {
			return err
		}
	}
	for _, t := range r.Types {
		if t.State() == StateNone {
			return &InvalidError{Field: "type", Value: string(t), Rule: "must be one of " + typeNames()}
		}
	}
	if err := checkStorable("actor", r.Actor); err != nil {
		return err
	}
	if err := checkStorable("prefix", r.Prefix); err != nil {
		return err
	}
	if r.StartAfter < 0 {
		return &InvalidError{Field: "after", Value: fmt.Sprint(r.StartAfter), Rule: "must not be negative"}
	}
	return nil
}

// typeNames lists the event types.
func typeNames() string {
	names := make([]string, 0, len(transitions))
	for _, row := range transitions {
		names = append(names, string(row.Type))
	}
	return strings.Join(names, ", ")
}

const (
	replayPage      = 2_000
	replayPageBytes = 8 << 20
)

// Events returns the events of a range, in the order of positions: the events of each task are in their order. A range
// that ends in the past contains the same events in the same order each time. The loop may break.
//
// It reads the events in pages, one in memory at a time. db must be a pool, a connection or a transaction on the
// primary; the loop may use it as well. Events writes nothing. An error is the last pair: the [*InvalidError] of
// [Range.Validate], or an error of the database.
func Events(ctx context.Context, db DB, r Range) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := eachEvent(ctx, db, r, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, err)
		}
	}
}

// eachEvent calls yield for each event of a range until it returns false.
func eachEvent(ctx context.Context, db DB, r Range, yield func(Event) bool) error {
	if err := r.Validate(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	reader, err := newReplay(ctx, db, r)
	if err != nil {
		return err
	}
	for !reader.isDone {
		if err := reader.read(ctx); err != nil {
			return pgerr.Explain("read events", err)
		}
		for _, e := range reader.events {
			if !yield(e) {
				return nil
			}
		}
	}
	return nil
}

// replay reads a range page by page.
type replay struct {
	db     DB
	r      Range
	logins map[int32]string
	limit  int
	keys   []any // the further arguments of replay_key.sql; nil: the whole range is read

	events []Event // of the page
	ids    []int32 // of their logins
	isDone bool
}

func newReplay(ctx context.Context, db DB, r Range) (*replay, error) {
	r, err := r.withMoments(ctx, db)
	if err != nil {
		return nil, err
	}
	reader := &replay{db: db, r: r, logins: make(map[int32]string), limit: replayPage}
	return reader, pgerr.Explain("read events", reader.useKeys(ctx))
}

// withMoments returns r with the places that its zero moments stand for.
func (r Range) withMoments(ctx context.Context, db DB) (Range, error) {
	if r.From.IsZero() {
		r.From = Moment{seen: "3:3:", seenBound: "3"}
	}
	var err error
	if r.To.IsZero() {
		r.To, err = present(ctx, db)
	}
	return r, err
}

// present returns the place of everything that is visible now.
func present(ctx context.Context, db DB) (Moment, error) {
	var isStandby bool
	m := Moment{seen: "3:3:", seenBound: "3"}
	if _, err := pgquery.Row(ctx, db, presentSQL, nil, &isStandby, &m.until, (*int64)(&m.top)); err != nil {
		return Moment{}, pgerr.Explain("read the present", err)
	}
	if isStandby {
		return Moment{}, errStandby
	}
	m.after = m.top
	return m, nil
}

var errStandby = fmt.Errorf("%w: the database is a standby: connect to the primary, or end the range in the past",
	ErrUnavailable)

func (r *replay) args() []any {
	from, to := r.r.From, r.r.To
	args := []any{from.seen, int64(from.seenTop), from.seenBound, pgquery.Optional(from.until), int64(from.after),
		to.seen, to.until, int64(to.top), int64(to.after), int64(r.r.StartAfter), int64(r.limit)}
	return append(args, r.r.filterArgs()...)
}

// filterArgs returns the arguments of statements that filter events: kinds and types as array literals, actor, prefix.
func (r Range) filterArgs() []any {
	var kinds, types pgarray.Builder
	for _, k := range r.Kinds {
		kinds.Add(string(k))
	}
	for _, t := range r.Types {
		types.Add(string(t))
	}
	return []any{kinds.String(), types.String(), r.Actor, r.Prefix}
}

// read reads the next page.
func (r *replay) read(ctx context.Context) error {
	statement, args := replaySQL, r.args()
	if r.keys != nil {
		statement, args = replayKeySQL, append(args, r.keys...)
	}
	rows, err := r.db.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	r.events, r.ids, r.isDone = r.events[:0], r.ids[:0], true
	above := r.r.StartAfter
	var isEnd, matches bool
	var login int32
	size := 0
	for e, err := range scanEvents(rows, &isEnd, &matches, &login) {
		if err != nil {
			return err
		}
		if matches {
			r.events, r.ids = append(r.events, e), append(r.ids, login)
			size += len(e.Data) + len(e.Meta)
		}
		r.r.StartAfter = e.Position
		if isEnd || size > replayPageBytes {
			r.isDone = false
			break
		}
	}
	r.limit = replayPage
	if size > replayPageBytes {
		r.limit = max(1, len(r.events))
	}
	if err := r.nameLogins(ctx); err != nil {
		return err
	}
	return r.addArchived(ctx, above)
}

// addArchived adds the archived events to the page, which was read before: an event that is removed between the two
// reads is in both.
func (r *replay) addArchived(ctx context.Context, above Position) error {
	if r.r.archived == nil {
		return nil
	}
	selected := unexported.ArchivedRange{
		From: r.r.From.archivedPlace(), To: r.r.To.archivedPlace(),
		Above: int64(above), Last: math.MaxInt64, Limit: replayPage,
	}
	if !r.isDone {
		selected.Last = int64(r.r.StartAfter)
	}
	archived, more, err := r.r.archived(ctx, r.db, selected)
	if err != nil || len(archived) == 0 {
		return err
	}
	if more {
		r.isDone, r.r.StartAfter = false, archived[len(archived)-1].Position
		r.events = slices.DeleteFunc(r.events, func(e Event) bool { return e.Position > r.r.StartAfter })
	}
	archived = slices.DeleteFunc(archived, func(e Event) bool { return !r.r.matches(e) })
	r.events = append(r.events, archived...)
	slices.SortStableFunc(r.events, func(a, b Event) int { return cmp.Compare(a.Position, b.Position) })
	r.events = slices.CompactFunc(r.events, func(a, b Event) bool { return a.Position == b.Position })
	return nil
}

func (m Moment) archivedPlace() unexported.ArchivedPlace {
	p := unexported.ArchivedPlace{Seen: m.seen, Until: m.until, After: int64(m.after)}
	if !m.at.IsZero() {
		p.At = withinMicros(m.at).UnixMicro()
	}
	return p
}

// matches reports whether an event matches the filters.
func (r Range) matches(e Event) bool {
	return (len(r.Kinds) == 0 || slices.Contains(r.Kinds, e.Kind)) &&
		(len(r.Types) == 0 || slices.Contains(r.Types, e.Type)) && (r.Actor == "" || r.Actor == e.Actor) &&
		strings.HasPrefix(e.Key.String(), r.Prefix)
}

// nameLogins sets the login of each event of the page. An id never changes its name, so each is read once.
func (r *replay) nameLogins(ctx context.Context) error {
	for i, id := range r.ids {
		name, ok := r.logins[id]
		if !ok {
			if _, err := pgquery.Row(ctx, r.db, loginNameSQL, []any{int64(id)}, &name); err != nil {
				return err
			}
			r.logins[id] = name
		}
		r.events[i].Login = name
	}
	return nil
}
