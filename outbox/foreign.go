package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/known.sql
	knownSQL string
	//go:embed sql/server_start.sql
	serverStartSQL string
)

// gap is a run of sequences that were not acknowledged to this session.
type gap struct{ from, to uint64 }

// maxInspected bounds how much of a gap is read. A relay leaves at most a few pages behind
// without a cursor row; what lies beyond is of the same writer.
const maxInspected = 10_000

// inspect makes sure that every message in a gap is our own, from a page that was given up or
// from a relay that crashed before its cursor row. If one is not, the error is a
// [*ForeignWriterError].
func (s *session) inspect(ctx context.Context, g gap) error {
	from := max(g.from, s.info.State.FirstSeq)
	found := make(map[uint64]stream.Message)
	for seq := from; seq <= min(g.to, from+maxInspected-1); seq++ {
		raw, err := s.stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read message %d: %w", seq, err)
		}
		m, err := stream.Decode(raw.Subject, raw.Header, nil)
		if err != nil {
			return &ForeignWriterError{Seq: seq, ID: raw.Header.Get("ce-id"), Reason: err.Error()}
		}
		if m.Source != s.source {
			return &ForeignWriterError{Seq: seq, ID: m.ID(), Reason: fmt.Sprintf("its source is %q, ours is %q", m.Source, s.source)}
		}
		if found[seq] = m; len(found) == stream.MaxPage {
			if err := s.known(ctx, found); err != nil {
				return err
			}
			clear(found)
		}
	}
	return s.known(ctx, found)
}

// known makes sure that messages tell of events in this ledger, as they stand there, or of ones
// that a crash of the database has undone.
func (s *session) known(ctx context.Context, messages map[uint64]stream.Message) error {
	if len(messages) == 0 {
		return nil
	}
	ids, err := s.eventIDs(ctx, messages)
	if err != nil {
		return err
	}
	for seq, m := range messages {
		if ids[m.Position] == m.ID() {
			delete(messages, seq)
		}
	}
	return s.undone(ctx, messages)
}

// eventIDs returns the ids of the events at the positions that messages tell of.
func (s *session) eventIDs(ctx context.Context, messages map[uint64]stream.Message) (map[ledger.Position]string, error) {
	var positions pgarray.Builder
	for _, m := range messages {
		positions.AddInt(int64(m.Position))
	}
	rows, err := s.relay.config.DB.Query(ctx, knownSQL, positions.String())
	if err != nil {
		return nil, pgerr.Explain("look events up", err)
	}
	defer rows.Close()
	ids := make(map[ledger.Position]string, len(messages))
	for rows.Next() {
		var position int64
		var kind, id string
		var version int32
		var at time.Time
		if err := rows.Scan(&position, &kind, &id, &version, &at); err != nil {
			return nil, pgerr.Explain("look events up", err)
		}
		e := ledger.Event{Key: ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}, Version: ledger.Version(version), RecordedAt: at}
		ids[ledger.Position(position)] = e.ID()
	}
	return ids, pgerr.Explain("look events up", rows.Err())
}

// maxUndone is how long before a crash a commit may have been made that the crash undoes: with
// synchronous_commit off that is three times wal_writer_delay, of which PostgreSQL allows 10 s.
const maxUndone = 30 * time.Second

// undone tells what a crash has undone from what somebody else sent. A transaction that does not
// wait for the disk (synchronous_commit off) is visible, and published, before it is safe. If the
// server crashes in that moment, the event is gone and its message is not; workers and
// subscribers know such a ghost by its ce-id. All of them were recorded in the last moments
// before the server started anew. What was recorded since, or over a longer time, is not
// explained by that: this is a copy of the database, or it was set back.
func (s *session) undone(ctx context.Context, messages map[uint64]stream.Message) error {
	if len(messages) == 0 {
		return nil
	}
	var start time.Time
	if err := s.relay.config.DB.QueryRow(ctx, serverStartSQL).Scan(&start); err != nil {
		return pgerr.Explain("read when the server started", err)
	}
	for _, seq := range slices.Sorted(maps.Keys(messages)) {
		m := messages[seq]
		if s.ghosts == 0 {
			s.oldest = m.RecordedAt
		}
		if m.RecordedAt.After(start) || m.RecordedAt.Sub(s.oldest).Abs() > maxUndone {
			return &ForeignWriterError{Seq: seq, ID: m.ID(), Reason: "this ledger has no such event"}
		}
		s.ghosts++
	}
	s.relay.hooks.each(func(h Hook) { h.MessagesUndone(ctx, len(messages)) })
	s.relay.config.Logger.WarnContext(ctx, "a crash of the database has undone events that were published", "messages", len(messages))
	return nil
}
