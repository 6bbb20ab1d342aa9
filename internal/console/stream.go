package console

import (
	"bytes"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// minChange is the least time between two frames of the stream of a page.
const minChange = time.Second

// stream answers with a stream of Server-Sent Events, one named change for all events of about a second. It is the
// stream of the API, whose tail all streams share.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	inner := h.authorized(r).Clone(r.Context())
	inner.Header.Set("Accept", "text/event-stream")
	inner.Header.Del("Last-Event-ID")
	inner.URL = &url.URL{Path: "/v1/events"}
	c := &changes{ResponseWriter: w, control: http.NewResponseController(w)}
	ended := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(minChange)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				c.tick()
			case <-ended:
				return
			}
		}
	})
	h.config.API.ServeHTTP(c, inner)
	close(ended)
	ticking.Wait()
}

// changes passes comments of a stream on, and replaces events by one frame a second.
type changes struct {
	http.ResponseWriter
	control *http.ResponseController

	mu        sync.Mutex
	isStream  bool
	isPending bool
}

// Unwrap is for http.ResponseController.
func (c *changes) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader notes whether the answer is a stream.
func (c *changes) WriteHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isStream = status == http.StatusOK
	c.ResponseWriter.WriteHeader(status)
}

// Write passes everything on except events. Each event is one call, and contains data.
func (c *changes) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStream && bytes.Contains(text, []byte("\ndata:")) {
		c.isPending = true
		return len(text), nil
	}
	return c.ResponseWriter.Write(text)
}

// FlushError sends the written bytes. It is called concurrently with tick.
func (c *changes) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.control.Flush()
}

// tick sends a frame if there were events.
func (c *changes) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isPending {
		return
	}
	c.isPending = false
	_ = c.control.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := c.ResponseWriter.Write([]byte("event: change\ndata:\n\n")); err == nil {
		_ = c.control.Flush()
	}
}
