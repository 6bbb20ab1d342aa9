package outbox

import (
	"cmp"
	"context"
	_ "embed"
	"slices"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

//go:embed sql/overtaken.sql
var overtakenSQL string

// admit returns the messages of a page that are published now. A withheld event is published before the next event of
// its task, for subscribers, if the stream has room for it: workers need it no more. It returns [errManyArgs] if there
// are too many such events for one page.
func (s backlog) admit(ctx context.Context, messages []message) ([]message, error) {
	if s.mark.Withheld.IsZero() {
		return messages, nil
	}
	waking := make(map[taskVersion]int) // of withheld kinds: indexes in messages
	isWithheld, isOvertaken := make([]bool, len(messages)), make([]bool, len(messages))
	overtaking := make(map[feed.Place][]ledger.Event)
	for i, m := range messages {
		place, isOfWithheldKind := s.mark.Withheld.at(m.event.Kind, m.event.Shard)
		if at, ok := waking[taskVersion{m.event.Key, m.event.Version - 1}]; ok {
			isOvertaken[at] = true
		} else if isOfWithheldKind && m.event.Version > 1 {
			overtaking[place] = append(overtaking[place], *m.event)
		}
		if isOfWithheldKind && m.event.Type.WakesWorkers() {
			waking[taskVersion{m.event.Key, m.event.Version}] = i
			isWithheld[i] = true
		}
	}
	var before []message
	for at, events := range overtaking {
		found, err := s.overtaken(ctx, at, events)
		if err != nil {
			return nil, err
		}
		before = append(before, found...)
	}
	overtaken := slices.Clone(before)
	for i, m := range messages {
		if isOvertaken[i] {
			overtaken = append(overtaken, m)
		}
	}
	areSkipped, err := s.skip(ctx, overtaken)
	if err != nil {
		return nil, err
	}
	if areSkipped {
		before = nil
	}
	admitted := before
	for i, m := range messages {
		if !isWithheld[i] || isOvertaken[i] && !areSkipped {
			admitted = append(admitted, m)
		}
	}
	return admitted, nil
}

// skip reports whether the messages of overtaken events are not published, because the stream would be nearly full and
// has no more to remove: only live work may use the rest of it. The mark notes that durable subscribers miss them, as
// if they had been cleared.
func (s backlog) skip(ctx context.Context, overtaken []message) (bool, error) {
	if len(overtaken) == 0 {
		return false, nil
	}
	if has, err := s.hasRoom(ctx, overtaken); has || err != nil {
		return false, err
	}
	return true, s.noteSkipped(ctx, overtaken)
}

// noteSkipped notes in the mark that durable subscribers miss the events of messages.
func (s backlog) noteSkipped(ctx context.Context, skipped []message) error {
	if len(skipped) == 0 {
		return nil
	}
	d, err := s.readDemand(ctx, nil)
	if err != nil {
		return err
	}
	first := slices.MinFunc(skipped, func(a, b message) int {
		return cmp.Compare(a.event.Position, b.event.Position)
	})
	room(s).noteSkipped(ctx, d, first.event.Position)
	return nil
}

// taskVersion identifies an event.
type taskVersion struct {
	key     ledger.Key
	version ledger.Version
}

// overtaken returns the messages of events, withheld from a place on, that are the last ones before events of their
// tasks.
func (s backlog) overtaken(ctx context.Context, at feed.Place, events []ledger.Event) ([]message, error) {
	var kinds, ids, versions pgarray.Builder
	for _, e := range events {
		kinds.Add(string(e.Kind))
		ids.Add(string(e.BizID))
		versions.AddInt(int64(e.Version) - 1)
	}
	args := append([]any{kinds.String(), ids.String(), versions.String()}, at.DeliveredArgs()...)
	rows, err := s.relay.config.DB.Query(ctx, overtakenSQL, args...)
	if err != nil {
		return nil, pgerr.Explain("find overtaken events", err)
	}
	messages, err := s.scanAllWork(ctx, rows, len(events))
	return messages, pgerr.Explain("find overtaken events", err)
}
