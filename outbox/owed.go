package outbox

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

var (
	//go:embed sql/unfinished.sql
	unfinishedSQL string
	//go:embed sql/lingering.sql
	lingeringSQL string
	//go:embed sql/lingering_place.sql
	lingeringPlaceSQL string
	//go:embed sql/lingering_from.sql
	lingeringFromSQL string
)

// owed is what a session must publish again after a loss, beside new events. Work messages of unfinished tasks come
// first: those that the projector lists as lingering, then those of events that it has not listed yet. Then all events
// follow, for subscribers. It is part of the mark, so that the next relay continues after a crash.
type owed struct {
	Listed *listed    `json:"listed,omitempty"` // lingering tasks are done up to here; nil: all
	From   feed.Place `json:"from,omitzero"`    // at or before all lingering tasks; zero: the beginning
	Work   feed.Place `json:"work"`             // work messages are done up to here
	Events feed.Place `json:"events"`           // all messages are done up to here
	To     feed.Place `json:"to"`               // where both end: new pages begin there
	Since  int64      `json:"since,omitempty"`  // microseconds since 1970: when the loss was found
}

// listed is a task in the list of lingering tasks.
type listed struct {
	EnqueuedAt int64        `json:"enqueued_at"` // microseconds since 1970
	Kind       ledger.Kind  `json:"kind"`
	BizID      ledger.BizID `json:"biz_id"`
}

// next returns the place after which all work messages are owed: a kind that is withheld begins there.
func (o *owed) next() feed.Place {
	switch {
	case o.Listed == nil:
		return o.Work
	case o.From.Seen.Snapshot == "":
		return beginning()
	}
	return o.From
}

// owesWork reports whether work messages of unfinished tasks are to be published again.
func (o *owed) owesWork() bool { return o != nil && (o.Listed != nil || o.Work != o.To) }

func beginning() feed.Place { return feed.Place{Window: feed.Window{Seen: feed.Beginning()}} }

// lingeringPlace returns the place up to which the projector lists all unfinished tasks; without a list it is the
// beginning.
func lingeringPlace(ctx context.Context, db *pgxpool.Pool) (place feed.Place, isListed bool, err error) {
	var text *string
	err = db.QueryRow(ctx, lingeringPlaceSQL).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && text == nil {
		return beginning(), false, nil
	}
	if err != nil {
		return place, false, pgerr.Explain("read the list of lingering tasks", err)
	}
	if err := json.Unmarshal([]byte(*text), &place); err != nil {
		return place, false, &ledger.CorruptError{What: "mark of the projector's cursor", Err: err}
	}
	return place, true, nil
}

// lingeringFrom returns places before the enqueueing of the tasks that the projector lists as lingering: of those of
// each of some kinds, if there are any, and of all for the kind "". They bound how much history is read for withheld
// kinds.
func lingeringFrom(ctx context.Context, db *pgxpool.Pool, kinds *withheld) (map[ledger.Kind]feed.Place, error) {
	var names pgarray.Builder
	for kind := range kinds.all() {
		names.Add(string(kind))
	}
	rows, err := db.Query(ctx, lingeringFromSQL, names.String())
	if err != nil {
		return nil, pgerr.Explain("find the first lingering tasks", err)
	}
	defer rows.Close()
	from := make(map[ledger.Kind]feed.Place)
	for rows.Next() {
		var kind string
		place := beginning()
		if err := rows.Scan(&kind, &place.Seen.Snapshot, (*int64)(&place.Seen.Top), &place.Seen.Bound); err != nil {
			return nil, pgerr.Explain("find the first lingering tasks", err)
		}
		from[ledger.Kind(kind)] = place
	}
	return from, pgerr.Explain("find the first lingering tasks", rows.Err())
}

const (
	// owedRead is how many events a step reads. New pages wait for at most one step.
	owedRead = 2 * stepSize
	// owedMarkEvery is the time after which the mark is written, unless a page has done so. It takes a new session.
	owedMarkEvery = 5 * time.Second
)

// recovery is the part of a session that publishes what is owed.
type recovery struct{ *session }

// next publishes the next owed messages and sets the timer for others. It ends the session when nothing is owed any
// more, so that the mark is written.
func (s recovery) next(ctx context.Context) error {
	o := *s.mark.Owed
	messages, err := s.read(ctx, &o)
	if err != nil {
		return err
	}
	if messages, err = s.withoutWithheld(ctx, messages); err != nil {
		return err
	}
	s.relay.sizes.note(messages, s.state.limit())
	if err := backlog(s).assess(ctx, messages); err != nil {
		return err
	}
	if messages, err = s.withoutWithheld(ctx, messages); err != nil {
		return err
	}
	isReplay := !s.mark.Owed.owesWork()
	if !isReplay {
		if messages, err = s.withholdExcess(ctx, messages); err != nil {
			return err
		}
	}
	wait, err := s.awaitRoom(ctx, messages, isReplay)
	s.hasMadeRoom = false
	if err != nil || wait > 0 {
		s.owedTimer.Reset(wait)
		return err
	}
	fault.Point(FaultPage)
	if isReplay {
		err = s.send(ctx, messages)
	} else {
		err = s.publish(ctx, messages)
	}
	if err != nil {
		return err
	}
	fault.Point(FaultPublished)
	s.mark.Owed = &o
	s.setAccounted()
	if o.Listed == nil && o.Work == o.To && o.Events == o.To {
		s.mark.Owed = nil
		s.relay.config.Logger.InfoContext(ctx, "what the stream had lost is published again")
		return errAgain
	}
	if time.Since(s.openedAt) > owedMarkEvery {
		return errAgain
	}
	s.owedTimer.Reset(0)
	return nil
}

// read reads the next owed messages and moves o behind them.
func (s recovery) read(ctx context.Context, o *owed) ([]message, error) {
	switch {
	case o.Listed != nil:
		return s.readListed(ctx, o)
	case o.Work != o.To:
		return s.readWork(ctx, o)
	}
	choice := feed.Choice{Read: stepSize, Limit: stepSize, First: stepSize / 8} // they may be large
	events, at, err := feed.Between(ctx, s.relay.config.DB, o.Events, o.To, choice)
	if err != nil {
		return nil, pgerr.Explain("read events again", err)
	}
	b, err := s.again.prepare(ctx, events)
	if err != nil {
		return nil, err
	}
	if len(b.events) < len(events) {
		choice.Limit = len(b.events)
		if _, at, err = feed.Between(ctx, s.relay.config.DB, o.Events, o.To, choice); err != nil {
			return nil, pgerr.Explain("read events again", err)
		}
	}
	if err := s.parkAll(ctx, b.rejects); err != nil {
		return nil, err
	}
	o.Events = at
	return b.messages, nil
}

// readListed reads the work messages of the next lingering tasks. If the list has gone, or another one is being made
// that does not reach the place of the former one, o becomes a walk of the ledger.
func (s recovery) readListed(ctx context.Context, o *owed) ([]message, error) {
	db := s.relay.config.DB
	var last listed
	if s.listRows == 0 {
		s.listRows = minArgs
	}
	rows, err := db.Query(ctx, lingeringSQL, o.Listed.EnqueuedAt, string(o.Listed.Kind), string(o.Listed.BizID),
		int64(s.listRows))
	if err != nil {
		return nil, pgerr.Explain("read lingering tasks", err)
	}
	w, err := s.scanWork(ctx, rows, maxArgsBytes, &last.EnqueuedAt, (*string)(&last.Kind), (*string)(&last.BizID))
	if err != nil {
		return nil, pgerr.Explain("read lingering tasks", err)
	}
	if s.listRows = min(growArgs*s.listRows, stepSize); w.isCut {
		s.listRows = w.rows + 1
	}
	// After the rows, because a rebuild of the projection may replace the list at any time.
	switch place, isListed, err := lingeringPlace(ctx, db); {
	case err != nil:
		return nil, err
	case !isListed || !reaches(place, o.Work):
		o.Listed, o.Work = nil, beginning()
		return w.messages, nil
	}
	if o.Listed = &last; last == (listed{}) {
		o.Listed = nil
	}
	return w.messages, nil
}

// reaches reports whether the place of a list, which moves on as long as the list is the same, is at or after to.
func reaches(place, to feed.Place) bool {
	return place.Seen.Top > to.Seen.Top || place.Seen.Top == to.Seen.Top && place.After >= to.After
}

// readWork reads the work messages of unfinished tasks among the next events.
func (s recovery) readWork(ctx context.Context, o *owed) ([]message, error) {
	db := s.relay.config.DB
	choice := feed.Choice{Read: owedRead, Limit: stepSize}
	choice.Wants = func(e ledger.Event) bool { return e.Type.WakesWorkers() }
	events, at, err := feed.Between(ctx, db, o.Work, o.To, choice)
	if err != nil {
		return nil, pgerr.Explain("find unfinished tasks", err)
	}
	if len(events) == 0 {
		o.Work = at
		return nil, nil
	}
	var positions pgarray.Builder
	for _, e := range events {
		positions.AddInt(int64(e.Position))
	}
	rows, err := db.Query(ctx, unfinishedSQL, positions.String())
	if err != nil {
		return nil, pgerr.Explain("find unfinished tasks", err)
	}
	w, err := s.scanWork(ctx, rows, maxArgsBytes)
	if err != nil {
		return nil, pgerr.Explain("find unfinished tasks", err)
	}
	if w.isCut {
		choice.Limit = slices.IndexFunc(events, func(e ledger.Event) bool { return e.Position > w.last })
		if _, at, err = feed.Between(ctx, db, o.Work, o.To, choice); err != nil {
			return nil, pgerr.Explain("find unfinished tasks", err)
		}
	}
	o.Work = at
	return w.messages, nil
}

// withoutWithheld returns the messages without those that a withheld kind has published since the loss, or publishes
// later: its waking events, unless they were published before the next event of their task.
func (s recovery) withoutWithheld(ctx context.Context, messages []message) ([]message, error) {
	if s.mark.Withheld.IsZero() {
		return messages, nil
	}
	var later []ledger.Event
	for _, m := range messages {
		if m.event.Type.WakesWorkers() && backlog(s).isOfWithheldKind(m) {
			later = append(later, *m.event)
		}
	}
	later, err := backlog(s).withoutFollowed(ctx, later)
	if err != nil {
		return nil, err
	}
	isWithheld := make(map[ledger.Position]bool, len(later))
	for _, e := range later {
		isWithheld[e.Position] = true
	}
	kept := messages[:0:0]
	for _, m := range messages {
		if !isWithheld[m.event.Position] {
			kept = append(kept, m)
		}
	}
	return kept, nil
}

// withholdExcess withholds the kinds whose messages take the most room, until the others leave the stream less than
// nearly full, and returns the messages without theirs. So a backlog cannot hold up what is owed to other kinds: it
// follows as the stream has room, those of kinds with workers first, see refillAll.
func (s recovery) withholdExcess(ctx context.Context, messages []message) ([]message, error) {
	total := bytesOf(messages)
	if !s.state.isNearlyFull(total) || s.canPurge() {
		return messages, nil
	}
	bytes := make(map[ledger.Kind]int64)
	for _, m := range messages {
		if m.waits(s.state.limit()) && !backlog(s).isOfWithheldKind(m) {
			bytes[m.event.Kind] += m.size
		}
	}
	kinds := slices.SortedFunc(maps.Keys(bytes), func(a, b ledger.Kind) int {
		return cmp.Or(cmp.Compare(bytes[b], bytes[a]), cmp.Compare(a, b))
	})
	for _, kind := range kinds {
		if !s.state.isNearlyFull(total) {
			break
		}
		backlog(s).withhold(kind, ledger.AllShards&^s.mark.Withheld.shards(kind))
		total -= bytes[kind]
	}
	return s.withoutWithheld(ctx, messages)
}

func bytesOf(messages []message) (total int64) {
	for i := range messages {
		total += messages[i].size
	}
	return total
}

// awaitRoom returns how long owed messages wait for room in the stream, without delaying new pages. If a purge made no
// room for events that are only for subscribers, the stream has as much of them as it can hold: the others are given
// up. Work messages that are not withheld are few, and may use all of the stream.
func (s recovery) awaitRoom(ctx context.Context, messages []message, isReplay bool) (time.Duration, error) {
	total := bytesOf(messages)
	if len(messages) == 0 || !s.state.isNearlyFull(total) {
		return 0, nil
	}
	r := s.relay
	if s.canPurge() {
		r.wantsRoom = total
		return 0, errAgain
	}
	if isReplay {
		from := s.mark.Owed.Events
		r.config.Logger.WarnContext(ctx, "the stream is full: older events are not published again for subscribers",
			"from_position", int64(max(from.Seen.Top, from.After)))
		s.mark.Owed = nil
		return 0, errAgain
	}
	if !s.state.overflows(total) {
		return 0, nil
	}
	return max(r.purgePause, minPurgeEvery), nil
}
