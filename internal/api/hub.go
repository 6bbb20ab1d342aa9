package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// linger is how long the tail runs after the last request that waited.
	linger = 30 * time.Second
	// tailIdle is the interval of the tail's polls without events: half of it delays an answer on average.
	tailIdle = 4 * time.Millisecond
	// reopenAfter is the delay before the tail is opened again after an error.
	reopenAfter = time.Second
)

// hub is the tail of the feed that all requests of the process share. It runs while a request waits or a stream is
// open. The events of a task wake the requests that wait for it. Streams follow a list of pages: each stream keeps only
// a pointer to its place in the list.
type hub struct {
	db    ledger.DB
	limit int // of the bytes in the list
	log   *slog.Logger

	closed chan struct{} // when the server shuts down

	mu      sync.Mutex
	users   int
	stop    context.CancelFunc // of the tail; nil: it does not run
	since   time.Time          // when the last user left
	waiters map[ledger.Key]map[*waiter]struct{}
	streams int

	opened chan struct{} // closed when the tail is open
	place  feed.Place    // of the tail
	newest *page         // which is not filled yet
	oldest *page
	bytes  int // of the list
}

// waiter is a request that waits for an event of a task.
type waiter struct {
	key  ledger.Key
	wake chan struct{} // buffered
}

// page is a part of the list that streams follow.
type page struct {
	filled chan struct{} // closed when the other fields are set; they do not change afterwards, but for isGone
	frames []frame
	bytes  int
	next   *page // nil: the tail has ended, and with it every stream
	isGone bool  // under hub.mu: streams that are still here are too slow
}

func newHub(db ledger.DB, limit int, log *slog.Logger) *hub {
	return &hub{db: db, limit: limit, log: log, closed: make(chan struct{}), opened: make(chan struct{}),
		waiters: map[ledger.Key]map[*waiter]struct{}{}}
}

// watch registers a request that waits.
func (h *hub) watch(k ledger.Key) *waiter {
	w := &waiter{key: k, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters[k] == nil {
		h.waiters[k] = map[*waiter]struct{}{}
	}
	h.waiters[k][w] = struct{}{}
	h.join()
	return w
}

// unwatch ends a watch.
func (h *hub) unwatch(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters[w.key], w)
	if len(h.waiters[w.key]) == 0 {
		delete(h.waiters, w.key)
	}
	h.leave()
}

var errHubClosed = errors.New("the server shuts down")

// follow registers a stream. It returns the place of the tail and the page that will contain the next events. Call
// unfollow if err is nil.
func (h *hub) follow(ctx context.Context) (feed.Place, *page, error) {
	h.mu.Lock()
	h.streams++
	h.join()
	for {
		opened, err := h.opened, error(nil)
		select {
		case <-opened:
			defer h.mu.Unlock()
			return h.place, h.newest, nil
		default:
		}
		h.mu.Unlock()
		select {
		case <-opened: // it may have ended again
		case <-h.closed:
			err = errHubClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			h.unfollow()
			return feed.Place{}, nil, err
		}
		h.mu.Lock()
	}
}

// unfollow ends a stream.
func (h *hub) unfollow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	h.leave()
}

// take returns the frames of a page that is filled, and false if it is gone.
func (h *hub) take(p *page) ([]frame, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.frames, !p.isGone
}

// join adds a user, and starts the tail if it does not run. h.mu is held.
func (h *hub) join() {
	h.users++
	select {
	case <-h.closed:
		return
	default:
	}
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go h.run(ctx)
	}
}

// leave removes a user, and stops the tail after a while if it was the last one. h.mu is held.
func (h *hub) leave() {
	if h.users--; h.users > 0 || h.stop == nil {
		return
	}
	h.since = time.Now()
	time.AfterFunc(linger, h.stopUnused)
}

func (h *hub) stopUnused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 && h.stop != nil && time.Since(h.since) >= linger {
		h.end()
	}
}

// close ends the tail and all streams, for good. It is called once.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.closed)
	if h.stop != nil {
		h.end()
	}
}

// end stops the tail. h.mu is held.
func (h *hub) end() {
	h.stop()
	h.stop = nil
	h.breakOff()
}

// run follows the feed until ctx is done. After an error that may have lost events it begins at the present. It then
// ends the streams, which clients resume, and wakes all waiting requests.
func (h *hub) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := h.tail(ctx)
		h.mu.Lock()
		if ctx.Err() == nil {
			h.breakOff()
		}
		h.mu.Unlock()
		if ctx.Err() == nil {
			h.log.WarnContext(ctx, "the API cannot follow the feed; it tries again every second", "error", err)
		}
		_ = loop.Sleep(ctx, reopenAfter)
	}
}

// breakOff ends the list, and with it every stream. h.mu is held.
func (h *hub) breakOff() {
	if h.newest != nil {
		close(h.newest.filled)
	}
	h.newest, h.oldest, h.bytes = nil, nil, 0
	select {
	case <-h.opened:
		h.opened = make(chan struct{})
	default:
	}
	h.wakeAll()
}

func (h *hub) wakeAll() {
	for _, waiters := range h.waiters {
		for w := range waiters {
			w.signal()
		}
	}
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tail follows the feed from the present on, until an error.
func (h *hub) tail(ctx context.Context) error {
	f, err := feed.Tail(ctx, h.db, &feed.Options{Idle: tailIdle})
	if err != nil {
		return err
	}
	h.mu.Lock()
	if ctx.Err() != nil {
		h.mu.Unlock()
		return ctx.Err()
	}
	h.place, h.newest = f.Place(), newPage()
	h.oldest = h.newest
	close(h.opened)
	h.wakeAll() // events may have been committed before the tail began
	h.mu.Unlock()
	for {
		read, err := f.Next(ctx)
		switch {
		case err == nil:
			h.publish(ctx, read)
		case ctx.Err() != nil, errors.Is(err, feed.ErrCrashed), errors.Is(err, feed.ErrNotPrimary),
			errors.Is(err, ledger.ErrNotMigrated):
			return err
		default: // the feed continues where it was
			h.log.WarnContext(ctx, "the API cannot read the feed; it tries again every second", "error", err)
			_ = loop.Sleep(ctx, reopenAfter)
		}
	}
}

func newPage() *page { return &page{filled: make(chan struct{})} }

// publish passes a page of the feed to the requests that wait and to the streams.
func (h *hub) publish(ctx context.Context, read feed.Page) {
	h.mu.Lock()
	hasStreams := h.streams > 0
	h.mu.Unlock()
	var frames []frame // made outside of the lock; a stream that registers meanwhile makes its place first
	if hasStreams {
		frames = newFrames(read.Events, streamID{})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for _, e := range read.Events {
		for w := range h.waiters[e.Key] {
			w.signal()
		}
	}
	h.place = read.Place()
	if !hasStreams && h.streams > 0 { // one has registered just now, at the place before this page
		frames = newFrames(read.Events, streamID{})
	}
	if frames == nil {
		return
	}
	filled := h.newest
	filled.frames, filled.next = frames, newPage()
	for _, f := range frames {
		filled.bytes += len(f.text)
	}
	h.newest = filled.next
	h.bytes += filled.bytes
	for h.bytes > h.limit && h.oldest != filled {
		h.bytes -= h.oldest.bytes
		h.oldest.isGone, h.oldest.frames = true, nil
		h.oldest = h.oldest.next
	}
	close(filled.filled)
}
