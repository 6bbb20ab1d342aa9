package workers

import (
	"log/slog"
	"sync"
	"time"
)

// repeatedEvery is how often a line is logged that there is reason for again and again.
const repeatedEvery = 10 * time.Second

// repeated logs what happens over and over, to task after task, while a server is away: a line at once,
// and of those of its sort that follow the last one every 10 s, with their number. It is safe for
// concurrent use.
type repeated struct {
	mu    sync.Mutex
	sorts map[sortOfLine]*heldBack
}

// sortOfLine is what lines have in common of which one stands for the others.
type sortOfLine struct {
	logger  *slog.Logger // a kind's, or the pool's
	message string
}

// heldBack are the lines of a sort since the last one that was logged.
type heldBack struct {
	n    int
	last []any // attributes
}

func newRepeated() *repeated { return &repeated{sorts: make(map[sortOfLine]*heldBack)} }

// warn logs a line now, or within repeatedEvery.
func (r *repeated) warn(l *slog.Logger, message string, attributes ...any) {
	sort := sortOfLine{l, message}
	r.mu.Lock()
	if held := r.sorts[sort]; held != nil {
		held.n++
		held.last = attributes
		r.mu.Unlock()
		return
	}
	r.sorts[sort] = &heldBack{}
	r.mu.Unlock()
	l.Warn(message, attributes...)
	time.AfterFunc(repeatedEvery, func() { r.next(sort) })
}

// next logs what was held back of a sort, if anything was.
func (r *repeated) next(sort sortOfLine) {
	r.mu.Lock()
	held := *r.sorts[sort]
	if held.n == 0 {
		delete(r.sorts, sort)
		r.mu.Unlock()
		return
	}
	r.sorts[sort] = &heldBack{}
	r.mu.Unlock()
	sort.logger.Warn(sort.message, append(held.last, "times", held.n)...)
	time.AfterFunc(repeatedEvery, func() { r.next(sort) })
}
