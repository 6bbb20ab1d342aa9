package outbox

import (
	"context"
	_ "embed"
	"hash/maphash"
	"maps"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

//go:embed sql/passed.sql
var passedSQL string

// stored has the messages that a session has found on the stream behind those that the cursor row accounts for: the
// relay or the session that published them wrote no row. A session publishes none of them again, unless they are older
// than the duplicate window of the stream: when an old state of the database is restored, workers need them again. On a
// replicated stream, messages with ids are published again, and the stream drops them. On another one, a message may
// have an id that the session would not give it: it had replicas before, or a withheld event was overtaken.
//
// The events of each task keep their order: once a session has published one, it publishes all later ones, too.
type stored struct {
	messages map[ledger.Position]storedMessage
	reached  map[ledger.Key]uint64 // of the tasks of these messages: the sequence behind which later events are
	next     map[taskVersion]nextMessage
}

// nextMessage is the message that was found of the next event of a task.
type nextMessage struct {
	position ledger.Position
	id       uint64 // hash of the event's id
}

// storedMessage is a message of our own on the stream.
type storedMessage struct {
	key      ledger.Key
	position ledger.Position
	seq      uint64
	content  uint64 // by contentOf
	id       uint64 // by hashOfID
	version  ledger.Version
	at       time.Time
	shard    ledger.Shard
	wakes    bool // workers
	hasID    bool
}

// behindAll is the sequence that is behind those of all messages.
const behindAll = math.MaxUint64

var contentSeed = maphash.MakeSeed()

func newStoredMessage(raw *jetstream.RawStreamMsg, m stream.Message) storedMessage {
	id := stream.IDOf(raw.Header)
	return storedMessage{m.Key, m.Position, raw.Sequence, contentOf(raw.Subject, id, raw.Data), hashOfID(id), m.Version,
		raw.Time, m.Shard, m.Type.WakesWorkers(), raw.Header.Get(nats.MsgIdHdr) != ""}
}

// contentOf returns a hash of a message.
func contentOf(subject, id string, data []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	for _, part := range []string{subject, id} { // neither has a zero byte
		h.WriteString(part)
		h.WriteByte(0)
	}
	h.Write(data)
	return h.Sum64()
}

// add adds the messages since a moment.
func (s *stored) add(messages []storedMessage, since time.Time) {
	if s.messages == nil {
		s.messages = make(map[ledger.Position]storedMessage, len(messages))
		s.reached = make(map[ledger.Key]uint64)
		s.next = make(map[taskVersion]nextMessage)
	}
	for _, m := range messages {
		if m.at.After(since) {
			s.messages[m.position] = m
			s.next[taskVersion{m.key, m.version - 1}] = nextMessage{m.position, m.id}
			if _, isKnown := s.reached[m.key]; !isKnown {
				s.reached[m.key] = 0
			}
		}
	}
}

// kept has the messages that a session of this relay has found on the stream, for the next one: making room may have
// removed them, while the page that they are of is not done.
type kept struct {
	generation int
	messages   map[ledger.Position]storedMessage
}

// adoptKept adds what the session before has found on the stream, and keeps all of it for the next one.
func (s *session) adoptKept(ctx context.Context) error {
	var removed []storedMessage
	if k := s.relay.kept; k.generation == s.mark.Generation {
		for position, m := range k.messages {
			if _, isFound := s.stored.messages[position]; !isFound {
				removed = append(removed, m)
			}
		}
	}
	if len(removed) > 0 {
		s.addStored(removed)
		if err := s.dropPassed(ctx); err != nil {
			return err
		}
	}
	s.relay.kept = kept{s.mark.Generation, maps.Clone(s.stored.messages)}
	return nil
}

// addStored adds messages that were found on the stream, but for those older than its duplicate window.
func (s *session) addStored(found []storedMessage) {
	s.stored.add(found, s.state.info.TimeStamp.Add(-s.state.info.Config.Duplicates))
}

// take reports whether a message is on the stream already, and so need not be published. It must be called in the order
// in which messages are published.
func (s *stored) take(m message) bool {
	if len(s.messages) == 0 {
		return false
	}
	found, ok := s.find(m)
	delete(s.messages, m.event.Position) // also of an event that a crash has undone, whose position this one has got
	reached, isKnown := s.reached[m.event.Key]
	if !isKnown {
		return false
	}
	if !ok || found.seq <= reached {
		s.overtake(m)
		return false
	}
	s.reached[m.event.Key] = found.seq
	return true
}

// find returns the message that was found on the stream, if it has the same content.
func (s *stored) find(m message) (storedMessage, bool) {
	found, ok := s.messages[m.event.Position]
	return found, ok && found.content == contentOf(m.msg.Subject, stream.IDOf(m.msg.Header), m.msg.Data)
}

// overtake notes that a message is published behind all that were found, so that the later ones of its task are, too.
func (s *stored) overtake(m message) {
	if _, isKnown := s.reached[m.event.Key]; isKnown {
		s.reached[m.event.Key] = behindAll
	}
}

// sent notes that messages were sent behind a sequence: those of them that are found there need not be published again,
// also of a task whose earlier messages had to be.
func (s *stored) sent(messages []message, behind uint64) {
	for _, m := range messages {
		if s.reached[m.event.Key] == behindAll {
			s.reached[m.event.Key] = behind
		}
	}
}

// split returns the messages that are not on the stream, and those that are, each in their order.
func (s *stored) split(messages []message) (missing, found []message) {
	for _, m := range messages {
		if _, ok := s.find(m); ok {
			found = append(found, m)
		} else {
			missing = append(missing, m)
		}
	}
	return missing, found
}

// dropPassed forgets the messages that are never taken: of events that this session has passed, as those that were sent
// again to a worker, or that do not exist. Others keep the mark where it is, see setAccounted.
func (s *session) dropPassed(ctx context.Context) error {
	if len(s.stored.messages) == 0 {
		return nil
	}
	var positions, places, seen, until, after pgarray.Builder
	numbers := make(map[feed.Place]int)
	for _, m := range s.stored.messages {
		at := s.published
		if place, isWithheld := s.mark.Withheld.at(m.key.Kind, m.shard); isWithheld && m.wakes {
			at = place
		}
		if numbers[at] == 0 {
			numbers[at] = len(numbers) + 1
			seen.Add(at.Seen.Snapshot)
			until.Add(at.Until.Snapshot)
			after.AddInt(int64(at.After))
		}
		positions.AddInt(int64(m.position))
		places.AddInt(int64(numbers[at]))
	}
	rows, err := s.relay.config.DB.Query(ctx, passedSQL, positions.String(), places.String(), seen.String(),
		until.String(), after.String())
	if err != nil {
		return pgerr.Explain("find passed events", err)
	}
	passed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for _, p := range passed {
		delete(s.stored.messages, ledger.Position(p))
	}
	return pgerr.Explain("find passed events", err)
}

// setAccounted moves the mark to the last message: no later event is before it, unless some messages that were found on
// the stream are still to be taken.
func (s *session) setAccounted() {
	if len(s.stored.messages) == 0 {
		s.mark.Accounted = s.mark.Seq
	}
}

// withoutStored returns the messages that are not on the stream already.
func (s *session) withoutStored(ctx context.Context, messages []message) []message {
	var rest []message
	for i, m := range messages {
		switch isStored := s.stored.take(m); {
		case isStored && rest == nil:
			rest = append(make([]message, 0, len(messages)), messages[:i]...)
		case !isStored && rest != nil:
			rest = append(rest, m)
		}
	}
	if rest == nil {
		return messages
	}
	n := len(messages) - len(rest)
	s.relay.hooks.each(func(h Hook) { h.DuplicatesDropped(ctx, n) })
	return rest
}
