package outbox

import (
	"context"
	_ "embed"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
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
	// archive contains args of events that the archive has removed. Nil: no such event is published.
	archive feed.Archive
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
		var wanted []*ledger.Event
		end := loaded
		for ; end < len(events); end++ {
			if !needsArgs(&events[end]) {
				continue
			}
			if len(wanted) == limit {
				break
			}
			wanted = append(wanted, &events[end])
		}
		if len(wanted) > 0 {
			if args == nil {
				args = make(map[ledger.Position]payloadSource)
			}
			read, err := n.readArgs(ctx, wanted, args)
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

// readArgs adds the args of some events, and returns their size in bytes.
func (n encoder) readArgs(
	ctx context.Context, of []*ledger.Event, args map[ledger.Position]payloadSource,
) (bytes int, err error) {
	var positions pgarray.Builder
	for _, e := range of {
		positions.AddInt(int64(e.Position))
	}
	rows, err := n.db.Query(ctx, argsSQL, positions.String())
	if err != nil {
		return 0, pgerr.Explain("read args", err)
	}
	var position int64
	var data, meta *string
	_, err = pgx.ForEachRow(rows, []any{&position, &data, &meta}, func() error {
		source := payloadSource{text(data), text(meta)}
		args[ledger.Position(position)] = source
		bytes += len(source.data) + len(source.meta)
		return nil
	})
	if err != nil {
		return 0, pgerr.Explain("read args", err)
	}
	missing := make(map[ledger.Key][]*ledger.Event)
	for _, e := range of {
		if _, ok := args[e.Position]; !ok {
			missing[e.Key] = append(missing[e.Key], e)
		}
	}
	for _, events := range missing {
		read, err := n.archivedArgs(ctx, events, args)
		if err != nil {
			return 0, err
		}
		bytes += read
	}
	return bytes, nil
}

// archivedArgs adds the args of events of one task that are not in the tables, and returns their size in bytes. It
// returns an [*ledger.ArchivedError] if the archive does not contain them: the events were archived after they were
// read.
func (n encoder) archivedArgs(
	ctx context.Context, of []*ledger.Event, args map[ledger.Position]payloadSource,
) (bytes int, err error) {
	var history []ledger.Event
	if n.archive != nil {
		history, err = n.archive.History(ctx, n.db, *of[0])
	} else {
		var known []*ledger.ArchivedError
		known, err = ledger.Archived(ctx, n.db, of[0].Key)
		if err == nil && known[0] != nil && of[0].Version <= known[0].Version {
			err = known[0]
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read args of %s: %w", of[0].ID(), err)
	}
	for _, e := range of {
		for _, earlier := range history {
			if !earlier.HasArgs() || earlier.Position >= e.Position {
				continue
			}
			args[e.Position] = payloadSource{earlier.Data, earlier.Meta}
		}
		bytes += len(args[e.Position].data) + len(args[e.Position].meta)
	}
	return bytes, nil
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
