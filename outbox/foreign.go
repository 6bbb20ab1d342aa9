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
	"golang.org/x/sync/errgroup"

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

// inspector distinguishes our own messages on the stream from foreign ones. It belongs to the goroutine of its session
// that opens, and then to the one that publishes.
type inspector struct {
	config Config
	hooks  hooks
	stream jetstream.Stream
	source string // of this ledger's messages

	undone      int       // messages on the stream whose events a crash, not a fail-over, has undone
	firstUndone time.Time // when the event of the first of them was recorded
}

// gap is a run of sequences that were not acknowledged to this session.
type gap struct{ from, to uint64 }

// maxInspected bounds how much of a gap is read. A relay leaves at most the pages of a second without a cursor row; the
// rest of a longer gap has the same writer, and is published again. Tests change it.
var maxInspected uint64 = 50_000

// inspectedAtOnce is how many messages are requested at a time.
const inspectedAtOnce = 32

// inspect returns our own messages in a gap, or a [*ForeignWriterError] if it contains a foreign one. first is the
// first sequence of the stream. Our own messages there are of a page that failed, or of a relay that crashed before it
// wrote the cursor row.
func (i *inspector) inspect(ctx context.Context, g gap, first uint64) ([]storedMessage, error) {
	return i.own(ctx, g, first, i.checkEvents)
}

// reread returns our own messages in a gap that an earlier session has inspected. It does not look for their events: a
// crash that has undone some of them may have been another one than that of later messages.
func (i *inspector) reread(ctx context.Context, g gap, first uint64) ([]storedMessage, error) {
	return i.own(ctx, g, first, func(context.Context, map[uint64]stream.Message) error { return nil })
}

func (i *inspector) own(
	ctx context.Context, g gap, first uint64, check func(context.Context, map[uint64]stream.Message) error,
) ([]storedMessage, error) {
	from := max(g.from, first)
	to := min(g.to, from+maxInspected-1)
	var own []storedMessage
	for ; from <= to; from += stepSize {
		raws, err := i.read(ctx, from, min(to, from+stepSize-1))
		if err != nil {
			return nil, err
		}
		messages := make(map[uint64]stream.Message)
		for _, raw := range raws {
			m, err := stream.Decode(raw.Subject, raw.Header, nil)
			if err != nil {
				return nil, &ForeignWriterError{Seq: raw.Sequence, ID: stream.IDOf(raw.Header), Reason: err.Error()}
			}
			if m.Source != i.source {
				reason := fmt.Sprintf("its source is %q, that of this ledger %q", m.Source, i.source)
				return nil, &ForeignWriterError{Seq: raw.Sequence, ID: m.ID(), Reason: reason}
			}
			messages[raw.Sequence] = m
			own = append(own, newStoredMessage(raw, m))
		}
		if err := check(ctx, messages); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// read returns the messages from one sequence to another, in their order.
func (i *inspector) read(ctx context.Context, from, to uint64) ([]*jetstream.RawStreamMsg, error) {
	found := make([]*jetstream.RawStreamMsg, to-from+1)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inspectedAtOnce)
	for n := range found {
		g.Go(func() error {
			raw, err := i.message(ctx, from+uint64(n))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read message %d: %w", from+uint64(n), err)
			}
			found[n] = raw
			return nil
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(found, func(raw *jetstream.RawStreamMsg) bool { return raw == nil }), err
}

// messagePatience bounds how long a message is requested again, because a leader that changes does not answer.
const messagePatience = 5 * time.Second

// message returns a message of the stream. A gap has many, so it does not give up at the first error.
func (i *inspector) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	backoff := loop.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}
	for begin := time.Now(); ; {
		raw, err := i.stream.GetMsg(ctx, seq)
		if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) || time.Since(begin) > messagePatience {
			return raw, err
		}
		if sleepErr := loop.Sleep(ctx, backoff.Next()); sleepErr != nil {
			return nil, err
		}
	}
}

// checkEvents returns a [*ForeignWriterError] if a message is about an event that is not in this ledger, and
// that no crash or fail-over of the database has undone. It removes messages from its argument.
func (i *inspector) checkEvents(ctx context.Context, messages map[uint64]stream.Message) error {
	if len(messages) == 0 {
		return nil
	}
	ids, err := i.eventIDs(ctx, messages)
	if err != nil {
		return err
	}
	for seq, m := range messages {
		if ids[m.Position] == m.ID() {
			delete(messages, seq)
		}
	}
	if err := i.explainFailOver(ctx, messages); err != nil {
		return err
	}
	return i.checkUndone(ctx, messages)
}

// eventIDs returns the ids of the events at the positions of messages.
func (i *inspector) eventIDs(
	ctx context.Context, messages map[uint64]stream.Message,
) (map[ledger.Position]string, error) {
	var positions pgarray.Builder
	for _, m := range messages {
		positions.AddInt(int64(m.Position))
	}
	rows, err := i.config.DB.Query(ctx, eventsAtSQL, positions.String())
	if err != nil {
		return nil, pgerr.Explain("find events", err)
	}
	defer rows.Close()
	ids := make(map[ledger.Position]string, len(messages))
	for rows.Next() {
		var position int64
		var kind, id string
		var version int32
		var at time.Time
		if err := rows.Scan(&position, &kind, &id, &version, pgquery.Micros(&at)); err != nil {
			return nil, pgerr.Explain("find events", err)
		}
		key := ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}
		e := ledger.Event{Key: key, Version: ledger.Version(version), RecordedAt: at}
		ids[ledger.Position(position)] = e.ID()
	}
	return ids, pgerr.Explain("find events", rows.Err())
}

// maxClockDifference is the greatest difference between the clocks of a primary and its standby.
const maxClockDifference = 30 * time.Second

// explainFailOver removes the messages of events that a fail-over or a restore has lost.
//
// A standby that is promoted may lack the last commits of its primary, also published ones. It begins a new timeline
// and has cursor rows of the one before, from the primary. So has a database that was recovered to a past moment.
// A dump lacks what was committed after it, and is rebased. So unknown events that were recorded before the switch or
// the rebase are explained. Messages of later ones come from a database that still works, and are foreign.
func (i *inspector) explainFailOver(ctx context.Context, messages map[uint64]stream.Message) error {
	if len(messages) == 0 {
		return nil
	}
	var micros *int64
	if err := i.config.DB.QueryRow(ctx, switchedSQL).Scan(&micros); err != nil {
		return pgerr.Explain("read when the database failed over", err)
	}
	if micros == nil {
		return nil
	}
	switched := time.UnixMicro(*micros)
	before := len(messages)
	maps.DeleteFunc(messages, func(_ uint64, m stream.Message) bool {
		return m.RecordedAt.Before(switched.Add(maxClockDifference))
	})
	if lost := before - len(messages); lost > 0 {
		i.hooks.each(func(h Hook) { h.MessagesUndone(ctx, lost) })
		i.config.Logger.WarnContext(ctx, "a fail-over or a restore of the database has lost published events",
			"messages", lost,
			"switched", switched)
	}
	return nil
}

// maxUndone is the longest time between a commit and a crash that undoes it: with synchronous_commit off that
// is three times wal_writer_delay, which is at most 10 s.
const maxUndone = 30 * time.Second

// checkUndone distinguishes messages of events that a crash has undone from foreign ones.
//
// A transaction with synchronous_commit off is visible, and published, before it is durable. If the server
// crashes at that moment, the ledger loses the event and the stream keeps its message. Workers and
// subscribers recognize it by its ce-id. All such events were recorded within maxUndone before the server
// started again. Messages of later events, or of a longer time, mean that the database is a copy or was
// restored.
func (i *inspector) checkUndone(ctx context.Context, messages map[uint64]stream.Message) error {
	if len(messages) == 0 {
		return nil
	}
	var start time.Time
	if err := i.config.DB.QueryRow(ctx, serverStartSQL).Scan(pgquery.Micros(&start)); err != nil {
		return pgerr.Explain("read when the server started", err)
	}
	for _, seq := range slices.Sorted(maps.Keys(messages)) {
		m := messages[seq]
		if i.undone == 0 {
			i.firstUndone = m.RecordedAt
		}
		if m.RecordedAt.After(start) || m.RecordedAt.Sub(i.firstUndone).Abs() > maxUndone {
			return &ForeignWriterError{Seq: seq, ID: m.ID(), Reason: "this ledger has no such event"}
		}
		i.undone++
	}
	i.hooks.each(func(h Hook) { h.MessagesUndone(ctx, len(messages)) })
	i.config.Logger.WarnContext(ctx, "a crash of the database has undone published events",
		"messages", len(messages))
	return nil
}
