package outbox

import (
	"cmp"
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

var (
	//go:embed sql/finished.sql
	finishedSQL string
	//go:embed sql/present.sql
	presentSQL string
)

// boundary is a place of the relay with the last message on the stream at that moment: the event of each message up to
// it is visible in the snapshot window. Of a page that is published in part, messages of events after the place are on
// the stream.
type boundary struct {
	at         feed.Place
	window     string
	seq        uint64
	generation int
	created    string // of the stream
}

// notePresent notes the present of a relay that has just taken the lease. Another relay may have published the messages
// on the stream.
func (s *session) notePresent(ctx context.Context) error {
	if s.relay.lastWindow != "" {
		return nil
	}
	err := s.relay.config.DB.QueryRow(ctx, presentSQL).Scan(&s.relay.lastWindow)
	return pgerr.Explain("read the present snapshot", err)
}

// noteWindow notes the window of a page of which events are published, if this session has opened it. The one in which
// its cursor row is does not count, since sessions before may have published events of later windows.
func (s *session) noteWindow(at feed.Place) {
	if w := snapshotOf(at); w != s.opened.Seen.Snapshot && w != s.opened.Until.Snapshot {
		s.relay.lastWindow = w
	}
}

// noteBoundary notes the place of the session with the last message on the stream.
func (s *session) noteBoundary() {
	s.relay.latest = boundary{
		at: s.published, window: s.relay.lastWindow, seq: s.mark.Seq, generation: s.mark.Generation,
		created: s.mark.Created,
	}
}

// snapshotOf returns the snapshot of the newest window that a place is in or behind.
func snapshotOf(at feed.Place) string { return cmp.Or(at.Until.Snapshot, at.Seen.Snapshot) }

// isOf reports whether it is of the stream that a mark describes.
func (p boundary) isOf(m mark) bool {
	return p.seq > 0 && p.generation == m.Generation && p.created == m.Created
}

// finishedKinds is kinds none of whose tasks waits. No waking event of theirs before a place wakes a worker any more,
// also when they have tasks again.
type finishedKinds struct {
	kinds []ledger.Kind
	boundary
	isPassed bool // the events with which the tasks have finished are published
}

// maxFinished is the greatest number of kinds whose messages are removed at a time, with some requests for each.
const maxFinished = 64

// findFinished finds finished kinds among those that have messages on the stream or are withheld, at a place that the
// projector has passed. Those of many kinds are found in several calls, in no order.
func (s backlog) findFinished(ctx context.Context, d *demand) (finishedKinds, error) {
	r := s.relay
	isUndone := compare(r.boundary.at, s.published) > 0 // by a fail-over, or its page has no cursor row
	if !r.boundary.isOf(s.mark) || isUndone || s.state.info.State.FirstSeq > r.boundary.seq {
		r.boundary = r.latest
	}
	f := finishedKinds{boundary: r.boundary}
	if !f.isOf(s.mark) {
		return finishedKinds{}, nil
	}
	var names pgarray.Builder
	left := stepSize
	for name, k := range d.kinds {
		if left > 0 && (k.all() > 0 || s.mark.Withheld.shards(name) != 0) {
			names.Add(string(name))
			left--
		}
	}
	if names.IsEmpty() {
		return finishedKinds{}, nil
	}
	names.Add("") // which is no kind, and finished if the projector has passed the place
	rows, err := r.config.DB.Query(ctx, finishedSQL, names.String(), f.window, s.published.Seen.Snapshot)
	if err != nil {
		return finishedKinds{}, pgerr.Explain("find finished kinds", err)
	}
	var kind string
	_, err = pgx.ForEachRow(rows, []any{&kind, &f.isPassed}, func() error {
		if kind == "" {
			r.boundary = r.latest
			return nil
		}
		f.kinds = append(f.kinds, ledger.Kind(kind))
		return nil
	})
	return f, pgerr.Explain("find finished kinds", err)
}

// passFinished moves withheld kinds that have finished to the place before which none of their tasks waits: the events
// of a large backlog are not read again. Those that have no tasks behind it are not withheld any more. It ends the
// session if kinds without workers use their share of the stream and no durable subscriber misses the messages of
// finished ones: the next session removes them. It does so once in purgeEvery.
func (s backlog) passFinished(ctx context.Context, d *demand) error {
	r := s.relay
	if time.Since(r.soughtAt) < purgeEvery {
		return nil
	}
	r.soughtAt = time.Now()
	f, err := s.findFinished(ctx, d)
	if err != nil {
		return err
	}
	hasMessages := false
	passed := make(map[ledger.Kind]ledger.ShardSet)
	for _, kind := range f.kinds {
		hasMessages = hasMessages || d.kinds[kind].all() > 0
		var shards ledger.ShardSet
		for _, p := range s.mark.Withheld.all()[kind] {
			if f.isPassed && compare(p.At, f.at) <= 0 {
				shards |= p.Shards
			}
		}
		if shards != 0 {
			s.mark.Withheld.set(kind, shards, f.at)
			passed[kind] = shards
		}
	}
	state := s.state.info.State
	areRemovable := hasMessages && f.seq >= state.FirstSeq && f.seq <= d.subscribed(state.LastSeq)
	if areRemovable && s.freeOfUnserved(d) < s.state.limit()/growthShare {
		r.finished = f
		return errAgain
	}
	return s.releasePassed(ctx, passed, f.at)
}

// releasePassed ends the withholding of kinds at a place if no waking event of theirs follows there. It needs no room
// in the stream. With very many events behind the place, it leaves that to the next time.
func (s backlog) releasePassed(ctx context.Context, kinds map[ledger.Kind]ledger.ShardSet, at feed.Place) error {
	if len(kinds) == 0 || s.mark.Owed.owesWork() {
		return nil
	}
	choice := feed.Choice{Limit: maxRefill, Read: maxRefill, First: stepSize}
	choice.Wants = func(e ledger.Event) bool { return kinds[e.Kind].Has(e.Shard) && e.Type.WakesWorkers() }
	later, end, err := feed.Between(ctx, s.relay.config.DB, at, s.published, choice)
	if err != nil {
		return pgerr.Explain("find withheld events", err)
	}
	if end != s.published {
		return nil
	}
	for _, e := range later {
		delete(kinds, e.Kind)
	}
	for kind, shards := range kinds {
		s.mark.Withheld.release(kind, shards)
		s.refills++ // the mark is to be written
	}
	return nil
}

// clearFinished removes the messages of finished kinds, and returns their number.
func (s room) clearFinished(ctx context.Context, d *demand, f finishedKinds) (uint64, error) {
	if len(f.kinds) == 0 || !f.isOf(s.mark) || f.seq < s.state.info.State.FirstSeq {
		return 0, nil
	}
	filters := make(map[string]uint64)
	kinds := 0
	for _, kind := range f.kinds {
		if k := d.kinds[kind]; k == nil || k.all() == 0 || kinds == maxFinished {
			continue
		}
		kinds++
		for t := range d.types {
			if t.WakesWorkers() {
				filters[stream.Pattern("*", string(t), string(kind))] = f.seq
			}
		}
	}
	cleared := s.mark.Cleared // the round of clear goes on there
	removed, err := s.removeMatching(ctx, d, f.seq, filters)
	s.mark.Cleared = cleared
	return removed, err
}
