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

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
)

var (
	//go:embed sql/server_run.sql
	serverRunSQL string
)

// gather is the least time between two pages of an idle stream. While a process waits for outcomes, the feed reads
// them at once.
const gather = 50 * time.Millisecond

// session is one stretch of undisturbed work. It opens the feed at the cursor and compares the stream with the cursor
// row's mark before it publishes. Every irregularity ends it. As after a crash, the next session derives from the
// database and the stream alone where to continue.
//
// Its fields belong first to the goroutine that opens it, and then to the goroutine that publishes.
type session struct {
	relay     *Relay
	publisher *stream.Publisher
	feed      *feed.Feed
	stream    jetstream.Stream
	encoder   encoder
	reconnect chan nats.Status

	info *jetstream.StreamInfo // when the session opened, or at the last check
	mark mark                  // of the newest cursor row
	last uint64                // sequence of the stream: every message up to it is known
	tail tail                  // messages behind the mark, which need not be published
}

// runSession opens a session and runs it to its end.
func (r *Relay) runSession(ctx context.Context, publisher *stream.Publisher) error {
	s := &session{relay: r, publisher: publisher}
	s.reconnect = r.config.NATS.StatusChanged(nats.CONNECTED)
	defer r.config.NATS.RemoveStatusListener(s.reconnect)
	err := s.open(ctx)
	if err == nil {
		err = s.run(ctx)
	}
	if (errors.Is(err, stream.ErrNoStream) || errors.Is(err, stream.ErrNoAck) ||
		errors.Is(err, jetstream.ErrStreamNotFound)) && s.isDeleted(ctx) {
		return errAgain
	}
	return err
}

// isDeleted reports whether the stream does not exist: an operator rebuilds it, and the next session creates it. A page
// may be on its way at that moment.
func (s *session) isDeleted(ctx context.Context) bool {
	_, err := s.relay.js.Stream(ctx, stream.PrefixOf(s.relay.config.NATS).Stream())
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

// open opens the feed and the stream, and finds out where to go on.
func (s *session) open(ctx context.Context) (err error) {
	c := s.relay.config
	s.feed, err = feed.Open(ctx, c.DB, reader, &feed.Options{
		PageSize:    c.pageSize,
		Gather:      gather,
		Idle:        gather,
		Prompt:      true, // waiters receive outcomes as messages
		Follows:     s.relay.found,
		Relaxed:     true, // a session skips messages that it finds on the stream
		KeepCursors: c.Stream.WithDefaults().MaxAge + time.Hour,
		Logger:      c.Logger,
		Missed:      s.relay.hooks.missed,
	})
	if err != nil {
		return err
	}
	installation, run, err := s.readRun(ctx)
	if err != nil {
		return err
	}
	s.encoder = encoder{db: c.DB, prefix: stream.PrefixOf(c.NATS), source: stream.Source(installation)}
	if s.stream, err = stream.Ensure(ctx, s.relay.js, c.Stream, installation); err != nil {
		return err
	}
	s.info = s.stream.CachedInfo()
	found, hasMark, err := parseMark(s.feed.Cursor().Mark)
	if err != nil {
		return err
	}
	s.mark = found
	if err := s.relay.copies.confirm(ctx, s, installation, run); err != nil {
		return err
	}
	if err := s.raiseLimit(ctx); err != nil { // which a copy must not do
		return err
	}
	if err := s.publisher.AwaitEarlier(ctx, c.AckTimeout); err != nil { // the previous session's messages
		return s.withRefusal(err)
	}
	if s.info, err = s.stream.Info(ctx); err != nil {
		return fmt.Errorf("read the state of stream %s: %w", s.encoder.prefix.Stream(), err)
	}
	return s.goOn(ctx, hasMark, run)
}

// raiseLimit raises the limit of the stream if the operator has configured a higher one. A refusal is logged once, and
// status reports the difference.
func (s *session) raiseLimit(ctx context.Context) error {
	r := s.relay
	if r.isLimitRefused {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.config.AckTimeout)
	defer cancel()
	raised, err := stream.RaiseLimit(limited, r.js, s.stream, r.config.Stream)
	s.stream = raised
	if err == nil || ctx.Err() != nil {
		return err
	}
	r.isLimitRefused = true
	r.config.Logger.WarnContext(ctx, "cannot raise the limit of the stream: give the user relay the permissions of "+
		"taskledger nats-config, or: nats stream edit --max-bytes",
		"error", relays.ExplainRequest(r.js, err))
	return nil
}

// check ends the session if another stream, or a new end of the stream, replaces the known one, or if the server was
// restarted. A session that used no connection during a restart has not noticed it: its marks name the earlier run, and
// a dispatcher waits until one names this run.
func (s *session) check(ctx context.Context) error {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the state of stream %s: %w", s.encoder.prefix.Stream(), err)
	}
	if s.info = info; createdAt(info) != s.mark.Created || info.State.LastSeq != s.last {
		return errAgain
	}
	_, run, err := s.readRun(ctx)
	if err == nil && run != s.mark.Server {
		err = errAgain
	}
	return err
}

// readRun reads the id of the installation, and the run of the server.
func (s *session) readRun(ctx context.Context) (installation, run string, err error) {
	_, err = pgquery.Row(ctx, s.relay.config.DB, serverRunSQL, nil, &installation, &run)
	return installation, run, pgerr.Explain("read the run of the server", err)
}

// publishedPage is a page that is on the stream, with the mark for its cursor row.
type publishedPage struct {
	page feed.Page
	mark json.RawMessage
}

// run reads, publishes and advances pages in three goroutines until one of them returns an error.
func (s *session) run(ctx context.Context) error {
	prepared := make(chan batch, 1)
	published := make(chan publishedPage, 1)
	advanced := make(chan struct{})
	read := func(ctx context.Context) error { return s.readPages(ctx, prepared) }
	publish := func(ctx context.Context) error {
		defer close(published)
		return s.publishPages(ctx, prepared, func(p publishedPage) {
			select {
			case published <- p:
			case <-advanced: // advancing failed, which ends the session
			}
		})
	}
	advance := func(ctx context.Context) error {
		defer close(advanced)
		return s.advancePages(ctx, published)
	}
	return loop.Together(ctx, read, publish, advance)
}

func (s *session) readPages(ctx context.Context, prepared chan<- batch) error {
	page, ok, err := s.feed.Poll(ctx)
	if err == nil && !ok {
		s.relay.progress() // nothing waits
	}
	for {
		if err == nil && !ok {
			page, err = s.feed.Next(ctx)
		}
		if err != nil {
			return err
		}
		ok = false
		for b, err := range s.encoder.parts(ctx, page) {
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
}

func (s *session) publishPages(ctx context.Context, prepared <-chan batch, deliver func(publishedPage)) error {
	tick := time.NewTicker(s.relay.config.CheckEvery)
	defer tick.Stop()
	for {
		select { // a due check comes before the next page, even during a backlog
		case <-s.reconnect:
			return errAgain
		default:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.reconnect:
			return errAgain
		case <-tick.C:
			if err := s.check(ctx); err != nil {
				return err
			}
		case b := <-prepared:
			if err := s.publishPart(ctx, b); err != nil {
				return err
			}
			if b.isLast {
				if err := s.eraseMessages(ctx, b.page.Events); err != nil {
					return err
				}
				s.notePublished(b.page)
				b.page.Release()
				deliver(publishedPage{page: b.page, mark: s.mark.encode()})
			}
		}
	}
}

// publishPart publishes a part of a page to its end, even if ctx is done.
func (s *session) publishPart(ctx context.Context, b batch) error {
	fault.Point(fault.RelayPage)
	if err := s.publishRetried(ctx, b.events); err != nil {
		return err
	}
	for _, r := range b.rejects {
		if err := s.park(ctx, r.event, r.reason); err != nil {
			return err
		}
	}
	return s.publish(ctx, b.messages)
}

// notePublished moves the mark over a page. While messages of the tail remain to be skipped, later events are behind
// the place where the skipping began.
func (s *session) notePublished(page feed.Page) {
	s.tail.pass(page)
	s.mark.Seq = s.last
	if s.tail.isEmpty() {
		s.mark.Tail = s.last
	}
}

const (
	// cursorEvery is the least time between two cursor rows of a session. Each row is a transaction. After a
	// crash, the next session searches the stream for the pages of this time.
	cursorEvery = 100 * time.Millisecond
	// cursorShare: cursor rows take one part in cursorShare of the time, unless maxCursorEvery has passed.
	cursorShare    = 16
	maxCursorEvery = time.Second
)

// advancePages writes cursor rows of published pages, even for pages published before ctx was done.
func (s *session) advancePages(ctx context.Context, published <-chan publishedPage) error {
	var due time.Time
	for p := range published {
		fault.Point(fault.RelayPublished)
		p = newestUntil(due, p, published)
		began := time.Now()
		if err := s.advance(ctx, p); err != nil {
			return err
		}
		due = time.Now().Add(min(max(cursorShare*time.Since(began), cursorEvery), maxCursorEvery))
		s.relay.progress()
		s.relay.hooks.each(func(h Hook) { h.PageAdvanced(ctx) })
	}
	return nil
}

// newestUntil returns the last page that is published before a moment, else p.
func newestUntil(moment time.Time, p publishedPage, published <-chan publishedPage) publishedPage {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return p
		case next, isOpen := <-published:
			if !isOpen {
				return p
			}
			fault.Point(fault.RelayPublished)
			p = next
		}
	}
}

func (s *session) advance(ctx context.Context, p publishedPage) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return p.page.Advance(ctx, nil, p.mark)
}
