package outbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/feed"
)

//go:embed sql/installation.sql
var installationSQL string

// Crash points of package internal/fault.
const (
	FaultPage      = "relay.page"      // before a page is published
	FaultPublished = "relay.published" // between a page's acknowledgements and its cursor row
)

// session is one stretch of undisturbed work: it opens the feed where the cursor stands and
// looks at the stream before it publishes. Everything irregular ends it, and the next one finds
// out from the database and the stream alone what has to be done, as after a crash.
type session struct {
	relay     *Relay
	publisher *stream.Publisher
	feed      *feed.Feed
	stream    jetstream.Stream
	source    string
	reconnect chan nats.Status

	mark   mark
	info   *jetstream.StreamInfo // last look at the stream
	infoAt time.Time
	first  uint64 // of the stream, when it was last found to be in order
	bytes  int64  // what the stream holds by our reckoning since the last look

	ghosts int       // messages seen whose events a crash has undone
	oldest time.Time // when the first of them was recorded
}

// session opens a session and runs it to its end.
func (r *Relay) session(ctx context.Context, publisher *stream.Publisher) error {
	s := &session{relay: r, publisher: publisher}
	s.reconnect = r.config.NATS.StatusChanged(nats.CONNECTED)
	defer r.config.NATS.RemoveStatusListener(s.reconnect)
	if err := s.open(ctx); err != nil {
		return s.suspect(err)
	}
	if !r.full {
		r.lease.remark("")
	}
	return s.suspect(s.run(ctx))
}

// suspect keeps a loss for the next session.
func (s *session) suspect(err error) error {
	var found *loss
	if !errors.As(err, &found) {
		return err
	}
	s.relay.suspicion = found
	return errAgain
}

func (s *session) open(ctx context.Context) (err error) {
	c := s.relay.config
	s.feed, err = feed.Open(ctx, c.DB, reader, &feed.Options{
		PageSize:    c.pageSize,
		KeepCursors: c.Stream.WithDefaults().MaxAge + time.Hour,
		Logger:      c.Logger,
		Hooks:       s.relay.hooks.ofFeed(),
	})
	if err != nil {
		return err
	}
	var installation string
	if err := c.DB.QueryRow(ctx, installationSQL).Scan(&installation); err != nil {
		return pgerr.Explain("read the installation", err)
	}
	s.source = stream.Source(installation)
	if s.stream, err = stream.Ensure(ctx, s.relay.js, c.Stream, installation); err != nil {
		return err
	}
	s.look(s.stream.CachedInfo())
	m, published, err := parseMark(s.feed.Cursor().Mark)
	if err != nil {
		return err
	}
	if !published {
		m = firstMark(s.info)
	}
	s.mark = m
	if err := s.verify(ctx); err != nil {
		return err
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	return s.relieve(ctx)
}

// look takes what the server said of the stream.
func (s *session) look(info *jetstream.StreamInfo) {
	s.info, s.infoAt, s.bytes = info, time.Now(), int64(info.State.Bytes)
}

// refresh looks at the stream.
func (s *session) refresh(ctx context.Context) error {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", stream.Name, err)
	}
	s.look(info)
	return nil
}

// rewind appends a cursor row that stands where to stood, with the mark as it is now.
func (s *session) rewind(ctx context.Context, to feed.Cursor) error {
	newest, err := s.feed.Cursors(ctx, 0, 1)
	if err != nil {
		return err
	}
	if len(newest) == 0 || newest[0].N != s.feed.Cursor().N {
		return feed.ErrSuperseded
	}
	return s.feed.Rewind(ctx, to, s.mark.encode())
}

// note writes the mark without moving the cursor.
func (s *session) note(ctx context.Context) error { return s.rewind(ctx, s.feed.Cursor()) }

// receipt is a page that is on the stream, with the mark to write for it.
type receipt struct {
	page feed.Page
	mark json.RawMessage
}

// run reads, publishes and advances pages, each a step ahead of the next, until something is
// in the way.
func (s *session) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	prepared := make(chan batch, 1)
	published := make(chan receipt, 1)
	advanced := make(chan struct{})
	g.Go(func() error { return s.readPages(ctx, prepared) })
	g.Go(func() error {
		defer close(published)
		return s.publishPages(ctx, prepared, func(done receipt) {
			select {
			case published <- done:
			case <-advanced: // it failed, and so has the session
			}
		})
	})
	g.Go(func() error {
		defer close(advanced)
		return s.advancePages(ctx, published)
	})
	return g.Wait()
}

func (s *session) readPages(ctx context.Context, prepared chan<- batch) error {
	for {
		page, err := s.feed.Next(ctx)
		if err != nil {
			return err
		}
		b, err := s.prepare(ctx, page)
		if err != nil {
			return err
		}
		select {
		case prepared <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *session) publishPages(ctx context.Context, prepared <-chan batch, done func(receipt)) error {
	tick := time.NewTicker(s.relay.config.CheckEvery)
	defer tick.Stop()
	for {
		// A look at the stream must not wait behind a long backlog.
		var err error
		select {
		case <-tick.C:
			err = s.check(ctx)
		case <-s.reconnect:
			err = s.check(ctx)
		default:
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			err = s.check(ctx)
		case <-s.reconnect:
			err = s.check(ctx)
		case b := <-prepared:
			if err = s.publishPage(ctx, b); err == nil {
				done(receipt{page: b.page, mark: s.mark.encode()})
			}
		}
		if err != nil {
			return err
		}
	}
}

// publishPage publishes one page to its end, also when the relay is told to stop meanwhile.
func (s *session) publishPage(ctx context.Context, b batch) error {
	fault.Point(FaultPage)
	for _, p := range b.unfit {
		if err := s.park(ctx, p.event, p.reason); err != nil {
			return err
		}
	}
	if err := s.send(ctx, b.messages); err != nil {
		return err
	}
	if s.relay.full {
		s.relay.full = false
		s.relay.lease.remark("")
	}
	return nil
}

// advancePages writes the cursor rows of the pages that are on the stream, also of those that
// are there when the relay is told to stop.
func (s *session) advancePages(ctx context.Context, published <-chan receipt) error {
	for done := range published {
		fault.Point(FaultPublished)
		if err := s.advance(ctx, done); err != nil {
			return err
		}
		s.relay.hooks.each(func(h Hook) { h.PageAdvanced(ctx) })
	}
	return nil
}

func (s *session) advance(ctx context.Context, done receipt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	return done.page.Advance(ctx, nil, done.mark)
}
