// Package slots gives the slots of a worker to what is ready to run.
package slots

import (
	"sync"
	"time"
)

// Pool schedules items fairly. Each needs a slot of its line and one of those over all lines. While too
// few of the latter are free the lines take turns, one item each, so a flooded line does not starve
// the others.
//
// A taken slot is a goroutine, a free one only a number: lines without items cost nothing, and numbers
// can change at any time. It is safe for concurrent use.
type Pool[T any] struct {
	run func(T) // in a goroutine that may end in it

	mu      sync.Mutex
	slots   int // over all lines; 0: as many as they have
	running int
	turns   []*Line[T] // lines with an item and a free slot of their own, the next one first
	stopped bool
}

// Line is the items of one kind. Its fields are guarded by the mutex of the pool. Make one with [NewLine].
type Line[T any] struct {
	slots   int
	running int
	ready   []item[T] // oldest first
	inTurns bool
}

type item[T any] struct {
	value T
	since time.Time
}

// NewLine returns a line with so many slots.
func NewLine[T any](slots int) *Line[T] { return &Line[T]{slots: slots} }

// first removes and returns the oldest item; there must be one.
func (l *Line[T]) first() T {
	first := l.ready[0]
	l.ready[0] = item[T]{}
	l.ready = l.ready[1:]
	return first.value
}

// Start sets how items are run. It must be called before the first Add.
func (p *Pool[T]) Start(run func(T)) { p.run = run }

// SetSlots changes the number of slots over all lines; 0: as many as they have. More are used at once,
// fewer as items end.
func (p *Pool[T]) SetSlots(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots = n
	p.fill()
}

// SetLineSlots changes the number of a line's own slots, in the same way.
func (p *Pool[T]) SetLineSlots(l *Line[T], n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.slots = n
	p.enlist(l)
	p.fill()
}

// Slots returns the number of slots over all lines, 0 if only theirs limit it.
func (p *Pool[T]) Slots() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots
}

// LineSlots returns the number of a line's own slots.
func (p *Pool[T]) LineSlots(l *Line[T]) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.slots
}

// Ready returns how many items of a line wait for a slot.
func (p *Pool[T]) Ready(l *Line[T]) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(l.ready)
}

// Add runs values of one line when it is their turn; since is when they began to wait. It reports false
// once the pool is stopped: then they are not run.
func (p *Pool[T]) Add(l *Line[T], since time.Time, values ...T) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	for _, v := range values {
		l.ready = append(l.ready, item[T]{v, since})
	}
	p.enlist(l)
	p.fill()
	return true
}

// Stop begins nothing from now on.
func (p *Pool[T]) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// Drain removes and returns what waits in a line of a stopped pool.
func (p *Pool[T]) Drain(l *Line[T]) (left []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(l.ready) > 0 {
		left = append(left, l.first())
	}
	return left
}

// TakeOlder removes and returns what has waited in a line since before a moment, the newest first, but
// leaves as many items as the line has free slots for.
func (p *Pool[T]) TakeOlder(l *Line[T], before time.Time) (late []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(l.ready); n > max(0, l.slots-l.running) && l.ready[n-1].since.Before(before); n-- {
		late = append(late, l.ready[n-1].value)
		l.ready[n-1] = item[T]{}
		l.ready = l.ready[:n-1]
	}
	return late
}

// Peek returns the oldest item of a line; false if there is none.
func (p *Pool[T]) Peek(l *Line[T]) (value T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(l.ready) == 0 {
		return value, false
	}
	return l.ready[0].value, true
}

// TakeIf removes and returns the oldest item of a line, to be run in a slot that is taken already, if
// suits reports that it may.
func (p *Pool[T]) TakeIf(l *Line[T], suits func(T) bool) (value T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(l.ready) == 0 || !suits(l.ready[0].value) {
		return value, false
	}
	return l.first(), true
}

// RunBeyond runs the oldest item of a line beyond the line's own slots. It returns a channel that is
// closed when that has ended; nil if nothing waits or all slots over all lines are taken.
func (p *Pool[T]) RunBeyond(l *Line[T]) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || len(l.ready) == 0 || l.running < l.slots || p.slots > 0 && p.running >= p.slots {
		return nil
	}
	value := l.first()
	p.running++
	ended := make(chan struct{})
	go func() {
		defer func() {
			p.mu.Lock()
			p.running--
			p.fill()
			p.mu.Unlock()
			close(ended)
		}()
		p.run(value)
	}()
	return ended
}

// fill gives free slots to what waits. p.mu is held.
func (p *Pool[T]) fill() {
	for value, l, ok := p.next(); ok; value, l, ok = p.next() {
		go p.work(value, l)
	}
}

// work runs an item in its slot, and then others whose turn it is, as long as there are any.
func (p *Pool[T]) work(value T, l *Line[T]) {
	for more := true; more; {
		value, l, more = p.runOne(value, l)
	}
}

// runOne runs an item and returns the next one for this goroutine. If the item ends the goroutine,
// another goroutine continues.
func (p *Pool[T]) runOne(value T, l *Line[T]) (next T, line *Line[T], ok bool) {
	returned := false
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		l.running--
		p.running--
		p.enlist(l)
		if returned {
			next, line, ok = p.next()
		}
		p.fill()
	}()
	p.run(value)
	returned = true
	return
}

// enlist adds a line to the turns if it has an item and a free slot for it. p.mu is held.
func (p *Pool[T]) enlist(l *Line[T]) {
	if !l.inTurns && len(l.ready) > 0 && l.running < l.slots {
		l.inTurns = true
		p.turns = append(p.turns, l)
	}
}

// next takes slots for the item whose turn it is; false if there is none or no slot. p.mu is held.
func (p *Pool[T]) next() (value T, line *Line[T], ok bool) {
	for len(p.turns) > 0 && (p.slots == 0 || p.running < p.slots) {
		l := p.turns[0]
		p.turns[0] = nil
		p.turns = p.turns[1:]
		l.inTurns = false
		if len(l.ready) == 0 || l.running >= l.slots { // there are fewer by now
			continue
		}
		value = l.first()
		l.running++
		p.running++
		p.enlist(l)
		return value, l, true
	}
	return value, nil, false
}
