package workers

import (
	"sync"
	"time"
)

// turns gives slots to what is ready to run: each attempt needs one of its kind's and one of those
// that the pool has over all kinds. While there are too few of the latter, the kinds that wait take
// turns, one handler each, so that one with a flood of tasks does not keep the others from theirs.
//
// A taken slot is a goroutine, a free one is nothing but a number: kinds that have nothing to do
// cost nothing, and numbers can be changed at any time. It is safe for concurrent use.
type turns struct {
	run func(*attempt) // runs one attempt, in a goroutine that may end in it

	mu      sync.Mutex
	slots   int // over all kinds; 0: as many as they have
	running int
	lines   []*line // with something ready and a slot of their own for it, whose turn is next first
	stopped bool
}

// line is what a pool's turns know of one kind.
type line struct {
	slots   int
	running int
	ready   []*attempt // first come first
	listed  bool       // in turns.lines
}

// mayShare reports whether there is a next one, and it may share a transaction.
func (l *line) mayShare() bool { return len(l.ready) > 0 && l.ready[0].mayShare() }

// first takes out what is next; there must be something.
func (l *line) first() *attempt {
	a := l.ready[0]
	l.ready[0] = nil
	l.ready = l.ready[1:]
	return a
}

// start says how attempts are run. None must have been added before.
func (t *turns) start(run func(*attempt)) { t.run = run }

// set changes the number of slots over all kinds. More are used at once; fewer as handlers return.
func (t *turns) set(slots int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots = slots
	t.serve()
}

// setLine changes the number of a kind's own slots, in the same way.
func (t *turns) setLine(l *line, slots int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.slots = slots
	t.list(l)
	t.serve()
}

// overall returns the number of slots over all kinds, 0 if only they limit it.
func (t *turns) overall() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slots
}

// slotsOf returns the number of a kind's own slots.
func (t *turns) slotsOf(l *line) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.slots
}

// add has attempts of one kind run when it is their turn. It reports false if nothing is begun any
// more: then they are still the caller's.
func (t *turns) add(l *line, ready ...*attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	l.ready = append(l.ready, ready...)
	t.list(l)
	t.serve()
	return true
}

// stop has nothing begin any more, and returns what has not begun.
func (t *turns) stop(kinds []*kind) (left []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for _, k := range kinds {
		left = append(left, k.line.ready...)
		k.line.ready = nil
	}
	return left
}

// late takes from the lines, last first, what has waited for a slot for longer than its kind has
// patience, but as many as it has slots for.
func (t *turns) late(kinds []*kind, now time.Time) (late []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range kinds {
		l, before := &k.line, now.Add(-k.patience())
		for n := len(l.ready); n > max(0, l.slots-l.running) && l.ready[n-1].decided.Before(before); n-- {
			late = append(late, l.ready[n-1])
			l.ready[n-1] = nil
			l.ready = l.ready[:n-1]
		}
	}
	return late
}

// serve gives free slots to what waits. t.mu is held.
func (t *turns) serve() {
	for a := t.next(); a != nil; a = t.next() {
		go t.work(a)
	}
}

// work runs an attempt in its slot, and then others whose turn it is, as long as there are any.
func (t *turns) work(a *attempt) {
	for a != nil {
		a = t.runOne(a)
	}
}

// runOne runs an attempt, and returns the next one for this goroutine. If the handler ends the
// goroutine, another one goes on.
func (t *turns) runOne(a *attempt) (next *attempt) {
	returned := false
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		l := &a.kind.line
		l.running--
		t.running--
		t.list(l)
		if returned {
			next = t.next()
		}
		t.serve()
	}()
	t.run(a)
	returned = true
	return nil
}

// mayShare reports whether the attempt that is next in a line may share a transaction.
func (t *turns) mayShare(l *line) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.mayShare()
}

// take takes the attempt that is next in a line, for a slot that is taken, if it may share a
// transaction; nil if none is, or may.
func (t *turns) take(l *line) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !l.mayShare() {
		return nil
	}
	return l.first()
}

// runBeyond runs one attempt of a kind that waits, beyond the kind's own slots. It returns what is
// closed when that is over; nil if nothing waits or the slots over all kinds are taken.
func (t *turns) runBeyond(l *line) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped || len(l.ready) == 0 || l.running < l.slots || t.slots > 0 && t.running >= t.slots {
		return nil
	}
	a := l.first()
	t.running++
	over := make(chan struct{})
	go func() {
		defer func() {
			t.mu.Lock()
			t.running--
			t.serve()
			t.mu.Unlock()
			close(over)
		}()
		t.run(a)
	}()
	return over
}

// list puts a kind in line if it has something to run and a slot for it. t.mu is held.
func (t *turns) list(l *line) {
	if !l.listed && len(l.ready) > 0 && l.running < l.slots {
		l.listed = true
		t.lines = append(t.lines, l)
	}
}

// next takes slots for the attempt whose turn it is; nil if there is none, or no slot. t.mu is held.
func (t *turns) next() *attempt {
	for len(t.lines) > 0 && (t.slots == 0 || t.running < t.slots) {
		l := t.lines[0]
		t.lines[0] = nil
		t.lines = t.lines[1:]
		l.listed = false
		if len(l.ready) == 0 || l.running >= l.slots { // it has fewer now
			continue
		}
		a := l.first()
		l.running++
		t.running++
		t.list(l)
		return a
	}
	return nil
}
