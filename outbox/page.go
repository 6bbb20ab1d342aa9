package outbox

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

var (
	//go:embed sql/args.sql
	argsSQL string
	//go:embed sql/park.sql
	parkSQL string
)

// batch is a page of events as messages.
type batch struct {
	page     feed.Page
	messages []message
	rejects  []reject
}

// message is an event ready to be published.
type message struct {
	event ledger.Event
	msg   *nats.Msg
	size  int64 // in the stream
}

// reject is an event that cannot be published.
type reject struct {
	event  ledger.Event
	reason string
}

// encoder makes messages of events. It is constant, and safe for concurrent use.
type encoder struct {
	db         *pgxpool.Pool
	source     string
	generation int
}

// prepare makes messages of a page. It runs while the page before is being published.
func (n encoder) prepare(ctx context.Context, page feed.Page) (batch, error) {
	b := batch{page: page, messages: make([]message, 0, len(page.Events))}
	args, err := n.args(ctx, page.Events)
	if err != nil {
		return batch{}, err
	}
	for _, e := range page.Events {
		source := payloadSource{e.Data, e.Meta}
		if needsArgs(e) {
			source = args[e.Position]
		}
		b.add(n.encode(e, source))
	}
	return b, nil
}

func (b *batch) add(m message, err error) {
	if err != nil {
		b.rejects = append(b.rejects, reject{event: m.event, reason: err.Error()})
		return
	}
	b.messages = append(b.messages, m)
}

// payloadSource is the source of a message's body: stored data, and the meta that defines its encoding.
type payloadSource struct{ data, meta []byte }

// encode makes the message of an event. Its error is permanent.
func (n encoder) encode(e ledger.Event, body payloadSource) (message, error) {
	if err := checkPublishable(e); err != nil {
		return message{event: e}, err
	}
	payload, err := ledger.Event{Data: body.data, Meta: body.meta}.Payload()
	if err != nil {
		return message{event: e}, err
	}
	msg := stream.Encode(e, payload, n.source, n.generation)
	stream.Enclose(msg, body.meta)
	e.Data, e.Meta = nil, nil // only the key is needed from here on
	return message{event: e, msg: msg, size: stream.Size(msg)}, nil
}

// checkPublishable returns an error if no message can carry the event, or no subscriber could decode it: package ledger
// writes no such event, but the owner of the schema may insert one.
func checkPublishable(e ledger.Event) error {
	if err := e.Key.Validate(); err != nil {
		return err
	}
	if err := e.Shard.Validate(); err != nil {
		return err
	}
	if e.Version < 1 || e.Attempt < 0 {
		return fmt.Errorf("invalid version %d or attempt %d", e.Version, e.Attempt)
	}
	return nil
}

// needsArgs reports whether the message of e carries the args of version 1.
func needsArgs(e ledger.Event) bool { return e.Type.WakesWorkers() && e.Version > 1 }

// args returns the args of the tasks that events make available again, by the events' positions.
func (n encoder) args(ctx context.Context, events []ledger.Event) (map[ledger.Position]payloadSource, error) {
	var positions pgarray.Builder
	for _, e := range events {
		if needsArgs(e) {
			positions.AddInt(int64(e.Position))
		}
	}
	if positions.IsEmpty() {
		return nil, nil
	}
	rows, err := n.db.Query(ctx, argsSQL, positions.String())
	if err != nil {
		return nil, pgerr.Explain("read args", err)
	}
	defer rows.Close()
	args := make(map[ledger.Position]payloadSource)
	for rows.Next() {
		var position int64
		var data, meta *string
		if err := rows.Scan(&position, &data, &meta); err != nil {
			return nil, pgerr.Explain("read args", err)
		}
		args[ledger.Position(position)] = payloadSource{text(data), text(meta)}
	}
	return args, pgerr.Explain("read args", rows.Err())
}

// text returns the bytes of a nullable column.
func text(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// park records an event that cannot be published, so that the events after it are not delayed. An event that is parked
// or discarded already stays so.
func (s *session) park(ctx context.Context, e ledger.Event, reason string) error {
	tag, err := s.relay.config.DB.Exec(ctx, parkSQL,
		int64(e.Position), string(e.Kind), string(e.BizID), int64(e.Version), reason)
	if err != nil {
		return pgerr.Explain("park "+e.ID(), err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	s.relay.hooks.each(func(h Hook) { h.EventParked(ctx, reason) })
	s.relay.config.Logger.ErrorContext(ctx, "cannot publish an event; parked it", "event", e.ID(), "reason", reason)
	return nil
}
