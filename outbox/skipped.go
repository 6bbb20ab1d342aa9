package outbox

import (
	"context"
	"hash/maphash"

	"github.com/taskledger/taskledger/internal/stream"
)

// withoutSkipped returns the messages without those that an earlier session has skipped, because the stream had no room
// for overtaken events: it has published the next events of their tasks, and was killed before it wrote the cursor row.
// Behind these, a skipped event would be out of order. The mark notes it as missed, as that session did.
func (s *session) withoutSkipped(ctx context.Context, messages []message) ([]message, error) {
	if len(s.stored.next) == 0 || s.mark.Owed != nil { // an event that was lost is not skipped
		return messages, nil
	}
	next := make(map[uint64]stream.Message) // by index in messages
	for i, m := range messages {
		if n, ok := s.stored.next[taskVersion{m.event.Key, m.event.Version}]; ok && s.mayBeSkipped(m) {
			next[uint64(i)] = stream.Message{Position: n.position}
		}
	}
	if len(next) == 0 {
		return messages, nil
	}
	ids, err := s.inspector.eventIDs(ctx, next) // a crash may have undone the next event
	if err != nil {
		return nil, err
	}
	var rest, skipped []message
	for i, m := range messages {
		n := s.stored.next[taskVersion{m.event.Key, m.event.Version}]
		if _, mayBe := next[uint64(i)]; mayBe && hashOfID(ids[n.position]) == n.id {
			skipped = append(skipped, m)
		} else {
			rest = append(rest, m)
		}
	}
	return rest, backlog{s}.noteSkipped(ctx, skipped)
}

// mayBeSkipped reports whether a message is a work message of a withheld kind that is not on the stream.
func (s *session) mayBeSkipped(m message) bool {
	_, isStored := s.stored.find(m)
	return !isStored && m.event.Type.WakesWorkers() && backlog{s}.isOfWithheldKind(m)
}

func hashOfID(id string) uint64 { return maphash.String(contentSeed, id) }
