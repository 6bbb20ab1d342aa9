package outbox

import (
	"context"
	_ "embed"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/args.sql
	argsSQL string
	//go:embed sql/park.sql
	parkSQL string
)

// batch is a part of a page as messages.
type batch struct {
	page     feed.Page
	events   []ledger.Event
	isLast   bool // of the page
	messages []message
	rejects  []reject
}

// message is an event ready to be published.
type message struct {
	event *ledger.Event // of the page
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
	db     *pgxpool.Pool
	prefix stream.Prefix // of the messages' subjects
	source string
}

const (
	// maxArgsBytes is the size in bytes at which no more args are loaded at a time. A page's own data is smaller, but
	// it may make a thousand tasks with large args available again.
	maxArgsBytes = 8 << 20
	// minArgs is how many args are requested at first: args of the default maximum size then take at most maxArgsBytes.
	// growArgs is the factor by which the next request may grow.
	minArgs, growArgs = 32, 8
)

// parts makes messages of a page, in parts whose args are loaded one after the other. Each part is made while the
// previous part is being published.
func (n encoder) parts(ctx context.Context, page feed.Page) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		for b, err := range n.batches(ctx, page.Events) {
			b.page = page
			if !yield(b, err) {
				return
			}
		}
	}
}

// batches splits some events into parts.
func (n encoder) batches(ctx context.Context, events []ledger.Event) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		for done := 0; done < len(events); {
			b, err := n.prepare(ctx, events[done:])
			if err != nil {
				yield(batch{}, err)
				return
			}
			done += len(b.events)
			b.isLast = done == len(events)
			if !yield(b, nil) {
				return
			}
		}
	}
}

// prepare makes messages of the first of some events: of all, or of as many as have about maxArgsBytes of args.
func (n encoder) prepare(ctx context.Context, events []ledger.Event) (batch, error) {
	args, loaded, err := n.args(ctx, events)
	if err != nil {
		return batch{}, err
	}
	b := batch{events: events[:loaded], messages: make([]message, 0, loaded)}
	for i := range b.events {
		e := &b.events[i]
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
		b.rejects = append(b.rejects, reject{event: *m.event, reason: err.Error()})
		return
	}
	b.messages = append(b.messages, m)
}

// payloadSource is the source of a message's body: stored data, and the meta that defines its encoding.
type payloadSource struct{ data, meta []byte }

// encode makes the message of an event. Its error is permanent.
func (n encoder) encode(e *ledger.Event, body payloadSource) (message, error) {
	if err := checkPublishable(e); err != nil {
		return message{event: e}, err
	}
	payload, err := ledger.Event{Data: body.data, Meta: body.meta}.Payload()
	if err != nil {
		return message{event: e}, err
	}
	msg, size := n.prefix.EncodeWhole(*e, payload, body.meta, n.source)
	return message{event: e, msg: msg, size: size}, nil
}

// checkPublishable returns an error if no message can carry the event, or no subscriber could decode it: package ledger
// writes no such event, but the owner of the schema may insert one.
func checkPublishable(e *ledger.Event) error {
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

// needsArgs reports whether the message of e carries args that are in an earlier event.
func needsArgs(e *ledger.Event) bool { return e.Type.WakesWorkers() && !e.HasArgs() }

// args returns the args of the tasks that the first of some events make available again, by the events' positions.
// loaded is the number of these events: all, or fewer if the args exceed maxArgsBytes.
func (n encoder) args(
	ctx context.Context, events []ledger.Event,
) (args map[ledger.Position]payloadSource, loaded int, err error) {
	var bytes int
	for limit := minArgs; loaded < len(events) && bytes < maxArgsBytes; {
		var positions pgarray.Builder
		end := loaded
		for wanted := 0; end < len(events); end++ {
			if !needsArgs(&events[end]) {
				continue
			}
			if wanted == limit {
				break
			}
			positions.AddInt(int64(events[end].Position))
			wanted++
		}
		if !positions.IsEmpty() {
			if args == nil {
				args = make(map[ledger.Position]payloadSource)
			}
			read, err := n.readArgs(ctx, positions.String(), args)
			if err != nil {
				return nil, 0, err
			}
			bytes += read
			limit = max(1, min(growArgs*limit, len(args)*(maxArgsBytes-bytes)/max(bytes, 1)))
		}
		loaded = end
	}
	return args, loaded, nil
}

// readArgs adds the args of the events at some positions, and returns their size in bytes.
func (n encoder) readArgs(
	ctx context.Context, positions string, args map[ledger.Position]payloadSource,
) (bytes int, err error) {
	rows, err := n.db.Query(ctx, argsSQL, positions)
	if err != nil {
		return 0, pgerr.Explain("read args", err)
	}
	defer rows.Close()
	for rows.Next() {
		var position int64
		var data, meta *string
		if err := rows.Scan(&position, &data, &meta); err != nil {
			return 0, pgerr.Explain("read args", err)
		}
		source := payloadSource{text(data), text(meta)}
		args[ledger.Position(position)] = source
		bytes += len(source.data) + len(source.meta)
	}
	return bytes, pgerr.Explain("read args", rows.Err())
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
