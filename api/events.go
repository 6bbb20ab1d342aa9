package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// eventPage is a page of events. Next continues after it, now or later.
type eventPage struct {
	Items []ledger.Event `json:"items"`
	Next  string         `json:"next"`
	More  bool           `json:"more"` // whether others have been committed already
}

// maxScan is the maximum number of pages of the feed that one call reads to find events that it wants.
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
	if last := r.Header.Values("Last-Event-ID"); len(last) > 0 && isStream {
		field, after = "Last-Event-ID", last[0]
	}
	if isStream && after == "" {
		return h.serveStream(w, r, chosen, nil, 0)
	}
	ctx, cancel := database(r)
	defer cancel()
	from, position, err := h.place(ctx, field, after)
	if err != nil {
		return err
	}
	if isStream {
		return h.serveStream(w, r, chosen, &from, position)
	}
	tail, err := feed.Tail(ctx, h.config.DB, nil)
	if err != nil {
		return err
	}
	to := tail.Place()
	answer := eventPage{Items: []ledger.Event{}}
	for pages := 0; pages < maxScan && from != to && len(answer.Items) < limit; pages++ {
		events, next, err := h.readPast(ctx, from, to, limit-len(answer.Items), chosen)
		if err != nil {
			return err
		}
		answer.Items, from = append(answer.Items, events...), next
		if size(answer.Items) > maxPageBytes {
			break
		}
	}
	answer.More = from != to
	if answer.Next, err = feed.FormatPlace(ctx, h.config.DB, from); err != nil {
		return err
	}
	return h.writeJSON(w, r, http.StatusOK, answer)
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

// place returns the place after a position, and the position, or the place of the next of an earlier page. "" is the
// beginning of the ledger.
func (h *Handler) place(
	ctx context.Context, field, after string,
) (feed.Place, ledger.Position, error) {
	if after == "" {
		after = "0"
	}
	if strings.Trim(after, "0123456789") == "" && len(after) < 20 {
		position, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return feed.Place{}, 0, invalid(field, "must be a position")
		}
		place, err := feed.PlaceAfter(ctx, h.config.DB, ledger.Position(position))
		if errors.Is(err, ledger.ErrUnknownPosition) {
			p := invalid(field, "no event has the position %d", position)
			p.Cure = "send the position of an event that exists and is not archived; 0 is the first one that is left"
			return place, 0, p
		}
		return place, ledger.Position(position), err
	}
	place, err := feed.ParsePlace(ctx, h.config.DB, after)
	var malformed *ledger.InvalidError
	switch {
	case errors.Is(err, feed.ErrForeignPlace):
		return place, 0, problem(codeGone, err.Error())
	case errors.As(err, &malformed):
		return place, 0, invalid(field, "must be a position, or the next of an earlier page")
	}
	return place, 0, err
}
