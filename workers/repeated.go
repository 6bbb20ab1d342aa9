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
	sorts map[sortOfLine]*heldBack // nil: it has ended, and nothing is held back
}

// sortOfLine is what lines have in common of which one stands for the others.
type sortOfLine struct {
	logger  *slog.Logger // a kind's, or the pool's
	message string
}

// heldBack are the lines of a sort since the last one that was logged.
type heldBack struct {
	n     int
	last  []any // attributes
	timer *time.Timer
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
	r.hold(sort)
	r.mu.Unlock()
	l.Warn(message, attributes...)
}

// hold has what follows of a sort held back. r.mu is held.
func (r *repeated) hold(sort sortOfLine) {
	if r.sorts != nil {
		r.sorts[sort] = &heldBack{timer: time.AfterFunc(repeatedEvery, func() { r.next(sort) })}
	}
}

// next logs what was held back of a sort, if anything was.
func (r *repeated) next(sort sortOfLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.sorts[sort]
	if held == nil {
		return
	}
	delete(r.sorts, sort)
	if held.n > 0 {
		held.log(sort)
		r.hold(sort)
	}
}

// end logs what is held back. Once it has returned nothing is logged but by who calls warn.
func (r *repeated) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sort, held := range r.sorts {
		held.timer.Stop()
		if held.n > 0 {
			held.log(sort)
		}
	}
	r.sorts = nil
}

func (h *heldBack) log(sort sortOfLine) {
	sort.logger.Warn(sort.message, append(h.last, "times", h.n)...)
}
