package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// eventPage is a page of events. Next continues after it, now or later.
type eventPage struct {
	Items []ledger.Event `json:"items"`
	Next  string         `json:"next"`
	More  bool           `json:"more"` // whether others have been committed already
}

// maxScan is the maximum number of pages of the feed that one call reads to find matching events.
const maxScan = 10

// getEvents answers with a page of events in the order of the feed, or with a stream of them if the client accepts
// text/event-stream.
func (h *Handler) getEvents(w http.ResponseWriter, r *http.Request, c *caller) error {
	isStream := r.Method == http.MethodGet && acceptsStream(r)
	names := []string{"after", "kind", "type"}
	if !isStream {
		names = append(names, "limit")
	}
	q := parseQuery(r, names...)
	chosen, limit := q.choice(c), q.limit()
	if q.err != nil {
		return q.err
	}
	field, after := "after", q.values.Get("after")
	if last := r.Header.Get("Last-Event-ID"); last != "" && isStream { // an empty one counts as not sent
		field, after = "Last-Event-ID", last
	}
	switch {
	case isStream && after == "" && q.values.Has("after"):
		return invalid("after", "must not be empty for a stream; 0 is the beginning, and without it is the present")
	case isStream && after == "":
		return h.serveStream(w, r, chosen, nil, streamID{})
	}
	ctx, cancel := database(r)
	defer cancel()
	from, id, err := h.place(ctx, field, after)
	if err != nil {
		return err
	}
	if isStream {
		return h.serveStream(w, r, chosen, &from, id)
	}
	tail, err := feed.Tail(ctx, h.config.DB, nil)
	if err != nil {
		return err
	}
	answer, err := h.readEvents(ctx, from, tail.Place(), limit, chosen)
	if err != nil {
		return err
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
}

// readEvents returns the page of the events between two places. Few pages are read at once.
func (h *Handler) readEvents(
	ctx context.Context, from, to feed.Place, limit int, chosen choice,
) (answer eventPage, err error) {
	leave, err := h.enterPast(ctx)
	if err != nil {
		return answer, err
	}
	defer leave()
	answer.Items = []ledger.Event{}
	bytes := maxPageBytes
	for pages := 0; pages < maxScan && from != to && len(answer.Items) < limit && bytes > 0; pages++ {
		events, next, err := h.readPast(ctx, from, to, limit-len(answer.Items), bytes, chosen)
		if err != nil {
			return answer, err
		}
		answer.Items, from = append(answer.Items, events...), next
		bytes -= size(events)
	}
	answer.More = from != to
	answer.Next, err = feed.FormatPlace(ctx, h.config.DB, from)
	return answer, err
}

func size(events []ledger.Event) (n int) {
	for _, e := range events {
		n += len(e.Data) + len(e.Meta)
	}
	return n
}

// acceptsStream reports whether the client accepts Server-Sent Events.
func acceptsStream(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			mediaType, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream") {
				return true
			}
		}
	}
	return false
}

// place returns the place after an event and the event's id. The event is given by its position or by its id in a
// stream. For the next of an earlier page, place returns that page's place. "" is the beginning of the ledger.
func (h *Handler) place(ctx context.Context, field, after string) (feed.Place, streamID, error) {
	if after == "" {
		after = "0"
	}
	if id, ok := parseStreamID(after); ok {
		place, id, err := h.placeAfter(ctx, id)
		if errors.Is(err, ledger.ErrUnknownPosition) {
			p := invalid(field, "no event has the position %d", id.position)
			p.Cure = "send the position of an event that exists and is not archived; 0 stands for the first event"
			return place, id, p
		}
		return place, id, err
	}
	place, err := feed.ParsePlace(ctx, h.config.DB, after)
	var malformed *ledger.InvalidError
	switch {
	case errors.Is(err, feed.ErrForeignPlace):
		return place, streamID{}, problem(codeGone, err.Error())
	case errors.As(err, &malformed):
		rule := "must be a position, the id of an event in a stream, or the next of an earlier page"
		return place, streamID{}, invalid(field, "%s", rule)
	}
	return place, streamID{}, err
}

// parseStreamID is the inverse of [streamID.String].
func parseStreamID(text string) (id streamID, ok bool) {
	position, at, hasTime := strings.Cut(text, "-")
	p, ok := parseNumber(position)
	if ok && hasTime {
		id.at, ok = parseNumber(at)
	}
	id.position = ledger.Position(p)
	return id, ok
}

func parseNumber(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strings.Trim(text, "0123456789") == ""
}

// placeAfter returns the place after an event, and the event's id with its time. It returns a problem if another event
// took the position.
func (h *Handler) placeAfter(ctx context.Context, id streamID) (feed.Place, streamID, error) {
	place, err := feed.PlaceAfter(ctx, h.config.DB, id.position)
	if err != nil || id.position == 0 {
		return place, id, err
	}
	for e, err := range ledger.Read(ctx, h.config.DB, id.position-1, 1) {
		if err != nil {
			return place, id, err
		}
		if found := idOf(e); found == id || id.at == 0 && found.position == id.position {
			return place, found, nil
		}
	}
	detail := fmt.Sprintf("position %d now belongs to another event than was read: the database was restored, "+
		"or failed over with losses", id.position)
	return place, id, problem(codeGone, detail)
}
