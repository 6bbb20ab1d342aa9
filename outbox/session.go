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
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

//go:embed sql/installation.sql
var installationSQL string

// Crash points of package internal/fault.
const (
	FaultPage      = "relay.page"      // before a page is published
	FaultSend      = "relay.send"      // between confirming the lease and the first message
	FaultPublished = "relay.published" // between a page's acknowledgements and its cursor row
	FaultRefill    = "relay.refill"    // before messages of a withheld kind are published
	FaultRefilled  = "relay.refilled"  // between their acknowledgements and the mark
)

// session is one stretch of undisturbed work. It opens the feed at the cursor and checks the stream before it
// publishes. Every irregularity ends it. The next session derives from the database and the stream alone what
// to do, as after a crash.
//
// Its fields belong to the goroutine that opens it, and then to the one that publishes.
type session struct {
	relay     *Relay
	publisher *stream.Publisher
	feed      *feed.Feed
	stream    jetstream.Stream
	inspector *inspector
	pages     encoder // of new events
	again     encoder // of events that may be on the stream: their messages have ids, which a repair changes
	reconnect chan nats.Status

	mark      mark
	state     streamState
	first     uint64          // first sequence of the stream, when it was last verified
	stored    stored          // messages that need not be published
	published feed.Place      // up to where events are on the stream, parked or withheld
	discarded ledger.Position // the last one of an event that is never to be published, when the session began
	assessAt  int64           // size of the stream from which the demand is to be assessed
	refills   int             // how often withheld messages were published
	marked    int             // refills that the last cursor row has
	hasMark   bool            // a cursor row has one

	opened feed.Place // of the cursor row with which the session began

	hasMadeRoom bool // when it began, and it has published no page since then

	openedAt   time.Time
	openedAtDB int64                         // the same by the database's clock, in microseconds since 1970
	hasPolled  chan struct{}                 // closed when the first new page, if any waits, is prepared
	owedTimer  *time.Timer                   // when the next owed messages are due
	listRows   int                           // how many lingering tasks to read next
	preceded   map[ledger.Key]ledger.Version // up to which this session has published the owed events of a task

	refillTimer *time.Timer  // when refillAll is due
	refillDelay loop.Backoff // between calls of refillAll that find nothing to do
}

// runSession opens a session and runs it to its end.
func (r *Relay) runSession(ctx context.Context, publisher *stream.Publisher) error {
	s := &session{relay: r, publisher: publisher, refillTimer: time.NewTimer(never), openedAt: time.Now(),
		owedTimer: time.NewTimer(never), hasPolled: make(chan struct{})}
	s.refillDelay = loop.Backoff{Min: minRefillDelay, Max: maxRefillDelay, Exact: true}
	s.reconnect = r.config.NATS.StatusChanged(nats.CONNECTED)
	defer r.config.NATS.RemoveStatusListener(s.reconnect)
	if err := s.open(ctx); err != nil {
		return s.postpone(ctx, err)
	}
	err := s.run(ctx)
	r.reached = reached{generation: s.mark.Generation, published: s.published, withheld: s.mark.Withheld,
		owed: s.mark.Owed, accounted: s.mark.Accounted}
	return s.postpone(ctx, err)
}

// postpone leaves a loss, or a stream that was deleted, to the next session, and returns any other error.
func (s *session) postpone(ctx context.Context, err error) error {
	var lost *loss
	switch {
	case errors.As(err, &lost):
		s.relay.pendingLoss = lost
		return errAgain
	case errors.Is(err, stream.ErrNoStream), errors.Is(err, stream.ErrNoAck),
		errors.Is(err, jetstream.ErrStreamNotFound):
		if !s.isDeleted(ctx) {
			return err
		}
		return errAgain
	}
	return err
}

// isDeleted reports whether the stream does not exist: an operator rebuilds it, and the next session creates it. A page
// may be on its way at that moment.
func (s *session) isDeleted(ctx context.Context) bool {
	_, err := s.relay.js.Stream(ctx, stream.Name)
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

// open opens the feed and the stream, repairs a loss, and makes room in the stream.
func (s *session) open(ctx context.Context) (err error) {
	c := s.relay.config
	s.feed, err = feed.Open(ctx, c.DB, reader, &feed.Options{
		PageSize:    c.pageSize,
		Follows:     c.Findings,
		Relaxed:     true, // a session finds on the stream what it need not publish
		KeepCursors: c.Stream.WithDefaults().MaxAge + time.Hour,
		Logger:      c.Logger,
		Hooks:       s.relay.hooks.ofFeed(),
	})
	if err != nil {
		return err
	}
	run, err := readServerRun(ctx, c.DB)
	if err != nil {
		return err
	}
	s.openedAtDB = run.now
	source := stream.Source(run.installation)
	if s.stream, err = stream.Ensure(ctx, s.relay.js, c.Stream, run.installation); err != nil {
		return err
	}
	s.inspector = &inspector{config: c, hooks: s.relay.hooks, stream: s.stream, source: source}
	s.state.set(s.stream.CachedInfo())
	m, published, err := parseMark(s.feed.Cursor().Mark)
	if err != nil {
		return err
	}
	if !published {
		m = firstMark(s.state.info)
	}
	s.mark = m
	isNewRun, err := s.confirm(ctx, run, published)
	if err != nil {
		return err
	}
	if s.stream, err = s.raiseLimit(ctx, s.stream); err != nil { // which a copy must not do
		return err
	}
	s.inspector.stream = s.stream
	if err := s.publisher.AwaitEarlier(ctx, c.AckTimeout); err != nil { // what the session before has sent
		return s.withRefusal(err)
	}
	if err := s.refresh(ctx); err != nil {
		return err
	}
	wasOwed, marked := m.Owed != nil, m.Withheld.clone()
	at := s.feed.Cursor()
	s.published = at.Place()
	s.opened = s.published
	s.adoptReached()
	if err := s.verify(ctx); err != nil {
		return err
	}
	if err := s.adoptKept(ctx); err != nil {
		return err
	}
	if err := s.readDiscarded(ctx); err != nil {
		return err
	}
	s.setEncoders(source)
	if err := s.notePresent(ctx); err != nil {
		return err
	}
	s.noteBoundary() // the session before may have published a part of a page, and left no room for the rest
	if err := s.makeFirstRoom(ctx); err != nil {
		return err
	}
	s.hasMark, s.relay.wantsMark = published || s.relay.wantsMark, false
	if wasOwed || isNewRun || published != s.hasMark || !marked.equals(s.mark.Withheld) {
		if err := s.writeMark(ctx); err != nil {
			return err
		}
	}
	return s.endRebuilds(ctx)
}

// makeFirstRoom makes room in the stream, but not before this relay has accounted for what it has found there: if it
// were killed after it has removed such messages, the next one would publish them again.
func (s *session) makeFirstRoom(ctx context.Context) error {
	isFirst := !s.relay.hasOpened
	if s.relay.hasOpened = true; isFirst && len(s.stored.messages) > 0 {
		return nil
	}
	return room{s}.makeRoom(ctx)
}

// setEncoders sets the encoders of a session. New events have message ids on a replicated stream, and while events are
// published again after a loss. Otherwise one server stores what it receives, in that order, so that a session finds on
// the stream what another one has published.
func (s *session) setEncoders(source string) {
	s.again = encoder{db: s.relay.config.DB, source: source, generation: s.mark.Generation}
	if s.pages = s.again; !s.needsIDs() {
		s.pages.generation = 0
	}
}

// needsIDs reports whether new events have message ids.
func (s *session) needsIDs() bool { return s.isReplicated() || s.mark.Owed != nil }

// raiseLimit raises the limit of the stream if the operator has configured a higher one. A refusal is logged once, and
// status reports the difference.
func (s *session) raiseLimit(ctx context.Context, found jetstream.Stream) (jetstream.Stream, error) {
	r := s.relay
	if r.isLimitRefused {
		return found, nil
	}
	limited, cancel := context.WithTimeout(ctx, r.config.AckTimeout)
	defer cancel()
	raised, err := stream.RaiseLimit(limited, r.js, found, r.config.Stream)
	if err == nil || ctx.Err() != nil {
		return raised, err
	}
	r.isLimitRefused = true
	r.config.Logger.WarnContext(ctx, "cannot raise the limit of the stream: give the user relay the permissions of "+
		"taskledger nats-config, or: nats stream edit LEDGER --max-bytes", "error", explainRequest(r.js, err))
	return found, nil
}

// adoptReached adopts what the session before has published after the cursor row.
func (s *session) adoptReached() {
	if p := s.relay.reached; p.generation == s.mark.Generation && p.published == s.published {
		s.mark.Withheld, s.mark.Owed, s.mark.Accounted = p.withheld, p.owed, p.accounted
	}
}

// refresh reads the state of the stream.
func (s *session) refresh(ctx context.Context) error {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the state of stream %s: %w", stream.Name, err)
	}
	s.state.set(info)
	s.assessAt = min(s.assessAt, s.state.bytes+s.state.unassessed(s.state.bytes))
	return nil
}

// rewind appends a cursor row at the place of another one, with the current mark.
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

// writeMark appends a cursor row with the current mark, without moving the cursor.
func (s *session) writeMark(ctx context.Context) error { return s.rewind(ctx, s.feed.Cursor()) }

// publishedPage is a page that is on the stream, with the mark for its cursor row.
type publishedPage struct {
	page feed.Page
	mark json.RawMessage
}

// run reads, publishes and advances pages in three goroutines until one of them returns an error.
func (s *session) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	prepared := make(chan batch, 1)
	published := make(chan publishedPage, 1)
	advanced := make(chan struct{})
	g.Go(func() error { return s.readPages(ctx, prepared) })
	g.Go(func() error {
		defer close(published)
		return s.publishPages(ctx, prepared, func(p publishedPage) {
			select {
			case published <- p:
			case <-advanced: // advancing failed, which ends the session
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
	page, ok, err := s.feed.Poll(ctx)
	if err == nil && !ok {
		s.relay.progress() // nothing waits
		close(s.hasPolled)
	}
	for isFirst := ok; ; isFirst = false {
		if err == nil && !ok {
			page, err = s.feed.Next(ctx)
		}
		if err != nil {
			return err
		}
		ok = false
		for b, err := range s.pages.parts(ctx, page) {
			if err != nil {
				return err
			}
			select {
			case prepared <- b:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if isFirst {
			close(s.hasPolled)
		}
	}
}

func (s *session) publishPages(ctx context.Context, prepared <-chan batch, deliver func(publishedPage)) error {
	tick := time.NewTicker(s.relay.config.CheckEvery)
	defer tick.Stop()
	s.refillTimer.Reset(0)
	defer s.refillTimer.Stop()
	defer s.owedTimer.Stop()
	polled := s.hasPolled
	for {
		// A due check comes before the next page, also while there is a backlog.
		var err error
		select {
		case <-tick.C:
			err = s.tidy(ctx)
		case <-s.reconnect:
			err = s.check(ctx)
		case <-s.refillTimer.C:
			err = backlog{s}.refillNow(ctx)
		default:
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			err = s.tidy(ctx)
		case <-s.reconnect:
			err = s.check(ctx)
		case <-s.refillTimer.C:
			err = backlog{s}.refillNow(ctx)
		case <-polled:
			if polled = nil; s.mark.Owed != nil {
				s.owedTimer.Reset(0)
			}
		case <-s.owedTimer.C: // no new page waits for more than one step
			err = recovery{s}.next(ctx)
		case b := <-prepared:
			if err = s.publishPart(ctx, b); err == nil && b.isLast {
				s.marked = s.refills
				s.noteBoundary()
				b.page.Release()
				deliver(publishedPage{page: b.page, mark: s.mark.encode()})
			}
		}
		if err != nil {
			return err
		}
	}
}

// tidy checks the stream. It ends a session that has no page to publish but leaves something to the next one: messages
// on a nearly full stream, or a cursor row that lacks what refills have published. It ends one whose messages do not
// suit the stream any more, because an operator has changed its replicas.
func (s *session) tidy(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.endRebuilds(ctx); err != nil {
		return err
	}
	s.hasMadeRoom = false
	if time.Since(s.openedAt) > s.state.info.Config.Duplicates {
		s.stored, s.relay.kept = stored{}, kept{} // what is left is of withheld kinds
	}
	isUnsuited := s.needsIDs() == (s.pages.generation == 0)
	if s.state.isNearlyFull(0) && s.canPurge() || s.marked < s.refills || isUnsuited {
		return errAgain
	}
	return nil
}

// publishPart publishes a part of a page, to its end also when ctx is done.
func (s *session) publishPart(ctx context.Context, b batch) error {
	if !s.hasMark { // else the next relay would not look for these messages, if this one is killed
		s.relay.wantsMark = true
		return errAgain
	}
	fault.Point(FaultPage)
	s.noteWindow(b.at)
	if err := s.publishRetried(ctx, b.events); err != nil {
		return err
	}
	s.relay.sizes.note(b.messages, s.state.limit())
	if err := (backlog{s}).assess(ctx, b.messages); err != nil {
		return err
	}
	if err := s.parkAll(ctx, b.rejects); err != nil {
		return err
	}
	if err := s.publishAdmitted(ctx, b.messages); err != nil {
		return err
	}
	s.published, s.hasMadeRoom = b.at, false
	s.setAccounted()
	return nil
}

// publishAdmitted publishes the messages that are not withheld, with those that they overtake. If these have too many
// args, it does so in parts.
func (s *session) publishAdmitted(ctx context.Context, messages []message) error {
	admitted, err := backlog{s}.admit(ctx, messages)
	if errors.Is(err, errManyArgs) {
		return inHalves(messages, func(half []message) error { return s.publishAdmitted(ctx, half) })
	}
	if err != nil {
		return err
	}
	return s.publish(ctx, admitted)
}

// publish publishes messages behind owed ones of their tasks, which are for subscribers and need room. If these have
// too many args, it does so in parts.
func (s *session) publish(ctx context.Context, messages []message) error {
	before, err := recovery{s}.preceding(ctx, messages)
	if errors.Is(err, errManyArgs) {
		return inHalves(messages, func(half []message) error { return s.publish(ctx, half) })
	}
	if err != nil {
		return err
	}
	areSkipped, err := backlog{s}.skip(ctx, before)
	if err != nil {
		return err
	}
	if len(before) == 0 || areSkipped {
		return s.send(ctx, messages)
	}
	return s.send(ctx, append(before, messages...))
}

// inHalves calls publish with the first and the second half of at least two messages.
func inHalves(messages []message, publish func([]message) error) error {
	n := len(messages) / 2
	if err := publish(messages[:n:n]); err != nil {
		return err
	}
	return publish(messages[n:])
}

// parkAll parks rejected events.
func (s *session) parkAll(ctx context.Context, rejects []reject) error {
	for _, r := range rejects {
		if err := s.park(ctx, r.event, r.reason); err != nil {
			return err
		}
	}
	return nil
}

// cursorEvery is the least time between two cursor rows of a session, each of which is a transaction. After a crash,
// the next session looks for the pages of this time on the stream. A row with thousands of withheld
// kinds is large: rows take one part in cursorShare of the time, unless maxCursorEvery has passed.
const (
	cursorEvery    = 100 * time.Millisecond
	cursorShare    = 16
	maxCursorEvery = time.Second
)

// advancePages writes cursor rows of published pages, also of those published before ctx was done.
func (s *session) advancePages(ctx context.Context, published <-chan publishedPage) error {
	var due time.Time
	for p := range published {
		fault.Point(FaultPublished)
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
			fault.Point(FaultPublished)
			p = next
		}
	}
}

func (s *session) advance(ctx context.Context, p publishedPage) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return p.page.Advance(ctx, nil, p.mark)
}
