package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/events_at.sql
	eventsAtSQL string
	//go:embed sql/server_start.sql
	serverStartSQL string
	//go:embed sql/switched.sql
	switchedSQL string
)

// tail contains the messages that a session has found on the stream behind the mark. A relay that was killed, or a
// session that failed, has published them without writing the row. This session does not publish them again.
//
// For each task these are the next events, without gaps, because an event is sent when the previous one is
// acknowledged.
type tail struct {
	found map[string]uint64 // contentOf a message, by the id of its event
	ends  int               // ends of windows that this session has published
}

var contentSeed = maphash.MakeSeed()

// contentOf returns a hash of a message. Another program may have published a message with the id of an event.
func contentOf(subject string, data []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	h.WriteString(subject)
	h.WriteByte(0) // never part of a subject
	h.Write(data)
	return h.Sum64()
}

func (t *tail) isEmpty() bool { return len(t.found) == 0 }

// take reports whether a message is on the stream already.
func (t *tail) take(m *nats.Msg) bool {
	id := stream.IDOf(m.Header)
	found, ok := t.found[id]
	delete(t.found, id)
	return ok && found == contentOf(m.Subject, m.Data)
}

// pass forgets the rest of the tail when all its events have been read: the events of the window that contains the
// cursor row, and of the next window, which was opened after the tail was read. The rest was published for an operator.
func (t *tail) pass(page feed.Page) {
	if page.Last() {
		t.ends++
	}
	if t.ends == 2 {
		t.found = nil
	}
}

// tailStep is how many messages of a tail are read before their events are searched for.
const tailStep = 1000

// maxTail bounds how much of a tail is read. A relay leaves at most the pages of a second without a cursor row. A
// database that was restored to an earlier moment has a longer tail, of events that it lacks. Tests change it.
var maxTail uint64 = 50_000

func (s *session) foreignWriter(seq uint64, id, reason string) error {
	return &ForeignWriterError{Stream: s.encoder.prefix.Stream(), Seq: seq, ID: id, Reason: reason}
}

// readTail reads the messages behind the mark. It returns a [*ForeignWriterError] if another writer published one of
// them.
func (s *session) readTail(ctx context.Context) error {
	s.tail = tail{found: make(map[string]uint64)}
	from := max(s.mark.Tail+1, s.info.State.FirstSeq)
	to := min(s.last, from+maxTail-1)
	var undone undone
	for ; from <= to; from += tailStep {
		raws, err := s.readMessages(ctx, from, min(to, from+tailStep-1))
		if err != nil {
			return err
		}
		unknown := make(map[uint64]stream.Message, len(raws))
		for _, raw := range raws {
			m, err := stream.Decode(raw.Subject, raw.Header, nil)
			if err != nil {
				return s.foreignWriter(raw.Sequence, stream.IDOf(raw.Header), err.Error())
			}
			if m.Source != s.encoder.source {
				reason := fmt.Sprintf("its source is %q, this ledger's source is %q", m.Source, s.encoder.source)
				return s.foreignWriter(raw.Sequence, m.ID(), reason)
			}
			unknown[raw.Sequence] = m
		}
		if err := s.removeOwn(ctx, unknown); err != nil {
			return err
		}
		for _, raw := range raws {
			if _, isUnknown := unknown[raw.Sequence]; !isUnknown {
				s.tail.found[stream.IDOf(raw.Header)] = contentOf(raw.Subject, raw.Data)
			}
		}
		if err := s.explain(ctx, unknown, &undone); err != nil {
			return err
		}
	}
	return nil
}

// readAtOnce is how many messages are requested at a time.
const readAtOnce = 32

// readMessages returns the messages from one sequence to another, in their order.
func (s *session) readMessages(ctx context.Context, from, to uint64) ([]*jetstream.RawStreamMsg, error) {
	found := make([]*jetstream.RawStreamMsg, to-from+1)
	var next atomic.Uint64
	read := func(ctx context.Context) error {
		for n := next.Add(1) - 1; n < uint64(len(found)); n = next.Add(1) - 1 {
			raw, err := s.readMessage(ctx, from+n)
			if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
				return fmt.Errorf("read message %d: %w", from+n, err)
			}
			found[n] = raw
		}
		return nil
	}
	readers := slices.Repeat([]func(context.Context) error{read}, min(readAtOnce, len(found)))
	err := loop.Together(ctx, readers...)
	return slices.DeleteFunc(found, func(raw *jetstream.RawStreamMsg) bool { return raw == nil }), err
}

// messagePatience bounds how long a message is requested again, because a leader that changes does not answer.
const messagePatience = 5 * time.Second

// readMessage returns a message of the stream. Tails are long, so it does not give up at the first error.
func (s *session) readMessage(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	backoff := loop.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}
	for begin := time.Now(); ; {
		raw, err := s.stream.GetMsg(ctx, seq)
		if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) || time.Since(begin) > messagePatience {
			return raw, err
		}
		if sleepErr := loop.Sleep(ctx, backoff.Next()); sleepErr != nil {
			return nil, err
		}
	}
}

// removeOwn removes the messages whose events are in this ledger.
func (s *session) removeOwn(ctx context.Context, messages map[uint64]stream.Message) error {
	var positions pgarray.Builder
	for _, m := range messages {
		positions.AddInt(int64(m.Position))
	}
	if positions.IsEmpty() {
		return nil
	}
	rows, err := s.relay.config.DB.Query(ctx, eventsAtSQL, positions.String())
	if err != nil {
		return pgerr.Explain("find events", err)
	}
	defer rows.Close()
	ids := make(map[ledger.Position]string, len(messages))
	for rows.Next() {
		var position int64
		var kind, id string
		var version int32
		var at time.Time
		if err := rows.Scan(&position, &kind, &id, &version, pgquery.Micros(&at)); err != nil {
			return pgerr.Explain("find events", err)
		}
		key := ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}
		ids[ledger.Position(position)] = ledger.Event{Key: key, Version: ledger.Version(version), RecordedAt: at}.ID()
	}
	maps.DeleteFunc(messages, func(_ uint64, m stream.Message) bool { return ids[m.Position] == m.ID() })
	return pgerr.Explain("find events", rows.Err())
}

// undone counts the messages of a tail whose events a crash has undone.
type undone struct {
	messages int
	first    time.Time // when the event of the first of them was recorded
}

const (
	// maxClockDifference is the greatest difference between the clocks of a primary and its standby.
	maxClockDifference = 30 * time.Second
	// maxUndone is the longest time between a commit and a crash that undoes it: with synchronous_commit off that is
	// three times wal_writer_delay, which is at most 10 s.
	maxUndone = 30 * time.Second
)

// explain returns a [*ForeignWriterError] unless the database has lost the events of all these messages.
//
// A standby that is promoted may lack its primary's last commits, including published ones. It begins a new timeline,
// and contains cursor rows of the previous one. The same holds for a database that was recovered to a past moment. A
// dump lacks the events committed after it, and is rebased. Events that were recorded before the switch or the rebase
// are explained.
//
// A transaction with synchronous_commit off is visible, and published, before it is durable. If the server crashes at
// that moment, the ledger loses the event. All such events were recorded within maxUndone before the server's restart.
//
// Messages of later events, or of a longer time, come from a database that still works: a copy, or the original.
func (s *session) explain(ctx context.Context, messages map[uint64]stream.Message, u *undone) error {
	if len(messages) == 0 {
		return nil
	}
	db := s.relay.config.DB
	var switched *int64
	var start time.Time
	if _, err := pgquery.Row(ctx, db, switchedSQL, nil, &switched); err != nil {
		return pgerr.Explain("read when the database failed over", err)
	}
	if _, err := pgquery.Row(ctx, db, serverStartSQL, nil, pgquery.Micros(&start)); err != nil {
		return pgerr.Explain("read when the server started", err)
	}
	for _, seq := range slices.Sorted(maps.Keys(messages)) {
		m := messages[seq]
		if switched != nil && m.RecordedAt.Before(time.UnixMicro(*switched).Add(maxClockDifference)) {
			continue
		}
		if u.messages == 0 {
			u.first = m.RecordedAt
		}
		if m.RecordedAt.After(start) || m.RecordedAt.Sub(u.first).Abs() > maxUndone {
			return s.foreignWriter(seq, m.ID(), "this ledger has no such event")
		}
		u.messages++
	}
	s.relay.hooks.each(func(h Hook) { h.MessagesUndone(ctx, len(messages)) })
	s.relay.config.Logger.WarnContext(ctx,
		"a crash, a fail-over or a restore of the database has undone published events", "messages", len(messages))
	return nil
}
