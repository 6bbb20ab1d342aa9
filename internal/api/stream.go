package api

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// frame is an event in the form of Server-Sent Events.
type frame struct {
	kind ledger.Kind
	typ  ledger.EventType
	text []byte
}

// streamID is the id of an event in a stream, as text <position>-<recorded_at in microseconds since 1970>. The time
// distinguishes the event from a later event with the same position, after a restore or a fail-over that lost the
// first.
type streamID struct {
	position ledger.Position
	at       int64 // 0: not known
}

func idOf(e ledger.Event) streamID { return streamID{e.Position, e.RecordedAt.UnixMicro()} }

func (id streamID) String() string {
	text := strconv.FormatInt(int64(id.position), 10)
	if id.at == 0 {
		return text
	}
	return text + "-" + strconv.FormatInt(id.at, 10)
}

// newFrames returns the frames of events. The id of each frame is its event's id, or after if that has a higher
// position. Thus a client that resumes a stream, and is cut off while events are repeated, does not fall back.
func newFrames(events []ledger.Event, after streamID) []frame {
	frames := make([]frame, 0, len(events))
	for _, e := range events {
		data, err := json.Marshal(e)
		if err != nil {
			continue // data that is not JSON, which no writer can store
		}
		var b bytes.Buffer
		b.Grow(len(data) + 64)
		id := idOf(e)
		if after.position > id.position {
			id = after
		}
		b.WriteString("id: ")
		b.WriteString(id.String())
		b.WriteString("\nevent: ")
		b.WriteString(string(e.Type))
		b.WriteString("\ndata: ")
		b.Write(data) // one line: Marshal writes no line breaks
		b.WriteString("\n\n")
		frames = append(frames, frame{e.Kind, e.Type, b.Bytes()})
	}
	return frames
}

//go:embed sql/newest.sql
var newestSQL string

// choice selects the events that a caller wants and may read.
type choice struct {
	caller *caller
	kinds  []string // patterns; none: all
	types  []ledger.EventType
}

// choice returns the parameters kind and type.
func (q *query) choice(c *caller) choice {
	chosen := choice{caller: c, kinds: q.values["kind"]}
	for _, pattern := range chosen.kinds {
		if err := checkPattern(pattern); err != nil && q.err == nil {
			q.err = err
		}
	}
	for _, name := range q.values["type"] {
		t := ledger.EventType(name)
		if t.State() == ledger.StateNone {
			q.fault("type", "must be one of %s, got %s", strings.Join(eventTypes(), ", "), printable.Short(name, 80))
		}
		chosen.types = append(chosen.types, t)
	}
	return chosen
}

// eventTypes returns the names of all types of events.
func eventTypes() (all []string) {
	for _, t := range ledger.Transitions() {
		all = append(all, string(t.Type))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (c choice) has(k ledger.Kind, t ledger.EventType) bool {
	return c.caller.mayUse(k) && (len(c.types) == 0 || slices.Contains(c.types, t)) &&
		(len(c.kinds) == 0 || slices.ContainsFunc(c.kinds, func(pattern string) bool { return matches(pattern, k) }))
}

// stream is an open stream of events.
type stream struct {
	h       *Handler
	w       http.ResponseWriter
	control *http.ResponseController
	choice  choice
	after   streamID // at which the stream was resumed
	written time.Time
	checked time.Time // when the caller was known to be valid
}

var errStreamEnds = errors.New("the stream ends")

// serveStream answers with events as they are committed. It begins at the place from, which was reached at the event
// after, or at the present if from is nil.
func (h *Handler) serveStream(
	w http.ResponseWriter, r *http.Request, chosen choice, from *feed.Place, after streamID,
) error {
	leave, err := h.waiting.enter(chosen.caller)
	if err != nil {
		return err
	}
	defer leave()
	opening, cancel := context.WithTimeout(r.Context(), databaseTimeout)
	defer cancel()
	if from == nil { // before the place of the tail: a client that is cut off before its first event resumes here
		if after, err = h.newest(r); err != nil {
			return err
		}
	}
	place, next, err := h.hub.follow(opening)
	if errors.Is(err, errHubClosed) {
		return problem(codeShutdown, "the server shuts down")
	}
	if err != nil {
		return err
	}
	isFollowing := true
	defer func() {
		if isFollowing {
			h.hub.unfollow()
		}
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx, which would collect events
	s := &stream{h: h, w: w, control: http.NewResponseController(w), choice: chosen, after: after,
		checked: time.Now()}
	w.WriteHeader(http.StatusOK)
	if s.write(one("id: "+after.String()+"\nretry: 1000\n\n"), 0) != nil {
		return nil
	}
	for from != nil {
		if err := s.catchUp(r.Context(), *from, place); err != nil {
			return nil //nolint:nilerr // the client resumes the stream, and gets the error then
		}
		if _, isHere := h.hub.take(next); isHere {
			break
		}
		// The list has moved on while the past was read: there is more of the past.
		past := place
		from = &past
		h.hub.unfollow()
		place, next, err = h.hub.follow(r.Context())
		if isFollowing = err == nil; !isFollowing {
			return nil //nolint:nilerr // as above
		}
	}
	s.live(r.Context(), next)
	return nil
}

// newest returns the id of the newest event.
func (h *Handler) newest(r *http.Request) (id streamID, err error) {
	ctx, cancel := database(r)
	defer cancel()
	_, err = pgquery.Row(ctx, h.config.DB, newestSQL, nil, (*int64)(&id.position), &id.at)
	return id, pgerr.Explain("read the newest event", err)
}

// write writes texts to the client, which must read them in time. ownBytes is the size of a page of the past, which
// counts against the limit of the process.
func (s *stream) write(texts iter.Seq[[]byte], ownBytes int) error {
	s.written = time.Now()
	if err := s.control.SetWriteDeadline(s.written.Add(s.h.config.bounds.write)); err != nil {
		return err
	}
	if ownBytes > 0 {
		defer s.h.past.begin(ownBytes, func() { _ = s.control.SetWriteDeadline(time.Now()) })()
	}
	for text := range texts {
		if _, err := s.w.Write(text); err != nil {
			return err
		}
	}
	return s.control.Flush()
}

// one returns a sequence of one text.
func one(text string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { yield([]byte(text)) }
}

// send writes the frames that the client wants. Unless isOwn is set, they belong to the list that all streams share.
func (s *stream) send(frames []frame, isOwn bool) error {
	isWanted := func(f frame) bool { return s.choice.has(f.kind, f.typ) }
	switch {
	case slices.ContainsFunc(frames, isWanted):
		ownBytes := 0
		for i := 0; isOwn && i < len(frames); i++ {
			ownBytes += len(frames[i].text)
		}
		return s.write(func(yield func([]byte) bool) {
			for _, f := range frames {
				if isWanted(f) && !yield(f.text) {
					return
				}
			}
		}, ownBytes)
	case time.Since(s.written) >= keepAlive-checkEvery:
		return s.write(one(": alive\n\n"), 0)
	}
	return nil
}

// checkEvery is the interval at which a stream finds that its caller was revoked or has expired.
const checkEvery = TokensAge / 2

// check returns errStreamEnds if the caller is no longer valid. If the database does not answer, no stream ends:
// otherwise all would end, and the database has no events for them either.
func (s *stream) check(ctx context.Context) error {
	if time.Since(s.checked) < checkEvery/2 {
		return nil
	}
	switch isValid, err := s.h.registry.isValid(ctx, s.choice.caller); {
	case err != nil:
	case !isValid:
		return errStreamEnds
	default:
		s.checked = time.Now()
	}
	return nil
}

// catchUp sends the events between two places.
func (s *stream) catchUp(ctx context.Context, from, to feed.Place) error {
	for from != to {
		frames, next, err := s.readFrames(ctx, from, to)
		if err != nil {
			return err
		}
		if err := s.check(ctx); err != nil {
			return err
		}
		if err := s.send(frames, true); err != nil {
			return err
		}
		from = next
		select {
		case <-s.h.draining.Done():
			return errStreamEnds
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
	return nil
}

// readFrames returns the frames of a page of the past. Few pages are read at once, so that streams leave connections
// and memory to others.
func (s *stream) readFrames(ctx context.Context, from, to feed.Place) ([]frame, feed.Place, error) {
	leave, err := s.h.enterPast(ctx)
	if err != nil {
		return nil, from, err
	}
	defer leave()
	events, next, err := s.h.readPast(ctx, from, to, maxList, maxPastBytes, s.choice)
	return newFrames(events, s.after), next, err
}

// enterPast waits until a page of the past may be read. It returns a function that lets the next one be read.
func (h *Handler) enterPast(ctx context.Context) (leave func(), err error) {
	select {
	case h.catchUps <- struct{}{}:
		return func() { <-h.catchUps }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// firstPast is how many events the first statement for a page of the past reads: they may be of 1 MB each.
const firstPast = 16

// readPast reads a page of the past, after enterPast.
func (h *Handler) readPast(
	ctx context.Context, from, to feed.Place, limit, bytes int, chosen choice,
) ([]ledger.Event, feed.Place, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	return feed.Between(ctx, h.config.DB, from, to, feed.Choice{Read: maxList, Limit: limit, First: firstPast,
		Bytes: bytes, Wants: func(e ledger.Event) bool { return chosen.has(e.Kind, e.Type) }})
}

// live sends the pages of the list until the client goes or is too slow, or the tail ends.
func (s *stream) live(ctx context.Context, next *page) {
	alive := time.NewTicker(checkEvery)
	defer alive.Stop()
	for {
		select {
		case <-next.filled:
			frames, isHere := s.h.hub.take(next)
			if !isHere || next.next == nil || s.send(frames, false) != nil {
				return
			}
			next = next.next
		case <-alive.C:
			if s.check(ctx) != nil || s.send(nil, false) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-s.h.draining.Done():
			return
		}
	}
}
