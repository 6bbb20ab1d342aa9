// Package slots assigns the slots of a worker to items that are ready to run.
package slots

import (
	"slices"
	"sync"
	"time"
)

// Pool schedules items fairly. Each item needs a slot of its line and a slot over all lines. While too few slots over
// all lines are free, the lines take turns, one item each, so a flooded line does not starve the others.
//
// A busy slot is a goroutine, a free one only a number: lines without items cost nothing, and numbers can change at
// any time. It is safe for concurrent use.
type Pool[T any] struct {
	run   func(T)     // runs an item; it may end its goroutine; constant after Start
	level func(T) int // the level of an item, or nil; constant after OrderBy

	mu      sync.Mutex // guards the fields below, and the lines' fields
	slots   int        // over all lines; 0: limited by the lines' own slots only
	running int
	turns   []*Line[T] // lines with an item and a free slot of their own, the next line first
	stopped bool

	isStarting bool // a goroutine for the next item is on its way
}

// Levels is the number of levels of items: 0 is the first.
const Levels = 4

// While items of several levels wait, every share-th item that leaves is the one with the longest wait.
const share = 16

// Line contains the items of one kind. An item of a lower level runs before an item of a higher one, and each 16th item
// is the one with the longest wait. The mutex of its pool guards all fields. Create one with [NewLine].
type Line[T any] struct {
	slots   int
	running int
	ready   [Levels][]item[T] // oldest first
	waiting int               // of all levels
	taken   int               // while items of several levels waited
	inTurns bool
}

// item is a value that waits for a slot; it is immutable.
type item[T any] struct {
	value T
	since time.Time
}

// NewLine returns a line with this number of slots.
func NewLine[T any](slots int) *Line[T] { return &Line[T]{slots: slots} }

// first returns the level of the item that runs next, and whether items of other levels wait; there must be an item.
// The pool's mutex is held.
func (l *Line[T]) first() (first int, hasOthers bool) {
	first = -1
	oldest := 0
	for i := range l.ready {
		switch {
		case len(l.ready[i]) == 0:
		case first < 0:
			first, oldest = i, i
		default:
			hasOthers = true
			if l.ready[i][0].since.Before(l.ready[oldest][0].since) {
				oldest = i
			}
		}
	}
	if hasOthers && l.taken%share == share-1 {
		return oldest, true
	}
	return first, hasOthers
}

// removeFirst removes and returns the item that runs next; there must be one. The pool's mutex is held.
func (l *Line[T]) removeFirst() T {
	i, hasOthers := l.first()
	if hasOthers {
		l.taken++
	}
	first := l.ready[i][0]
	l.ready[i][0] = item[T]{}
	l.ready[i] = l.ready[i][1:]
	l.waiting--
	return first.value
}

// Start sets how items are run. It must be called before the first Add.
func (p *Pool[T]) Start(run func(T)) { p.run = run }

// OrderBy sets the function that returns the level of an item, below [Levels]. It must be called before the first Add.
// Default: all items have the same level.
func (p *Pool[T]) OrderBy(level func(T) int) { p.level = level }

// SetSlots changes the number of slots over all lines; 0: only the lines' own slots limit them. Additional slots are
// used at once; a lower number takes effect as items end.
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

// Slots returns the number of slots over all lines; 0: only the lines' own slots limit them.
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
	return l.waiting
}

// Add queues values of one line to be run in their turn; since is when they began to wait. Once the pool is stopped
// it queues nothing and returns false.
func (p *Pool[T]) Add(l *Line[T], since time.Time, values ...T) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	for _, v := range values {
		i := 0
		if p.level != nil {
			i = p.level(v)
		}
		l.ready[i] = append(l.ready[i], item[T]{v, since})
		l.waiting++
	}
	p.enlist(l)
	p.fill()
	return true
}

// Stop begins no further item.
func (p *Pool[T]) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// Drain removes and returns the waiting items of a line of a stopped pool.
func (p *Pool[T]) Drain(l *Line[T]) (values []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l.waiting > 0 {
		values = append(values, l.removeFirst())
	}
	return values
}

// free returns how many more items of a line may run now. p.mu is held.
func (p *Pool[T]) free(l *Line[T]) int {
	n := l.slots - l.running
	if p.slots > 0 {
		n = min(n, p.slots-p.running)
	}
	return max(0, n)
}

// Free returns how many more items of a line may run now, in addition to those that wait.
func (p *Pool[T]) Free(l *Line[T]) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.free(l)-l.waiting)
}

// TakeOlder removes and returns the items of a line that have waited since before a moment, but for as many as may run
// now.
func (p *Pool[T]) TakeOlder(l *Line[T], before time.Time) (values []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.free(l)
	for level := range l.ready {
		l.ready[level] = slices.DeleteFunc(l.ready[level], func(i item[T]) bool {
			kept--
			isOlder := kept < 0 && i.since.Before(before)
			if isOlder {
				values = append(values, i.value)
				l.waiting--
			}
			return isOlder
		})
	}
	return values
}

// Peek returns the item of a line that runs next. It returns false if the line is empty.
func (p *Pool[T]) Peek(l *Line[T]) (value T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.waiting == 0 {
		return value, false
	}
	i, _ := l.first()
	return l.ready[i][0].value, true
}

// TakeIf removes and returns the item of a line that runs next, if suits returns true for it. The caller runs it in a
// slot that it already has.
func (p *Pool[T]) TakeIf(l *Line[T], suits func(T) bool) (value T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.waiting == 0 {
		return value, false
	}
	if i, _ := l.first(); !suits(l.ready[i][0].value) {
		return value, false
	}
	return l.removeFirst(), true
}

// RunBeyond runs the next item of a line beyond the line's own slots. It returns a channel that is closed when the
// item has ended. It returns nil if no item waits, the line has a free slot, or all slots over all lines are busy.
func (p *Pool[T]) RunBeyond(l *Line[T]) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || l.waiting == 0 || l.running < l.slots || p.slots > 0 && p.running >= p.slots {
		return nil
	}
	value := l.removeFirst()
	p.running++
	done := make(chan struct{})
	go func() {
		defer func() {
			p.mu.Lock()
			p.running--
			p.fill()
			p.mu.Unlock()
			close(done)
		}()
		p.run(value)
	}()
	return done
}

// fill runs waiting items in the free slots. p.mu is held.
//
// It starts one goroutine, which starts the next before it runs its item. So waiting items run at the same time, and
// quick items need few goroutines: the first goroutine has run them before others begin.
func (p *Pool[T]) fill() {
	if p.isStarting || len(p.turns) == 0 || p.slots > 0 && p.running >= p.slots {
		return
	}
	p.isStarting = true
	go p.start()
}

// start takes slots for an item and runs it.
func (p *Pool[T]) start() {
	p.mu.Lock()
	p.isStarting = false
	value, l, ok := p.next()
	p.fill()
	p.mu.Unlock()
	if ok {
		p.work(value, l)
	}
}

// work runs an item in its slot, and then further items in their turn while there are any.
func (p *Pool[T]) work(value T, l *Line[T]) {
	for more := true; more; {
		value, l, more = p.runOne(value, l)
	}
}

// runOne runs an item and returns the next one for this goroutine. If the item ends the goroutine, another goroutine
// continues.
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

// enlist adds a line to the turns if it has an item and a free slot. p.mu is held.
func (p *Pool[T]) enlist(l *Line[T]) {
	if !l.inTurns && l.waiting > 0 && l.running < l.slots {
		l.inTurns = true
		p.turns = append(p.turns, l)
	}
}

// next takes slots for the item whose turn it is. It returns false if no item waits or no slot is free. p.mu is held.
func (p *Pool[T]) next() (value T, line *Line[T], ok bool) {
	for len(p.turns) > 0 && (p.slots == 0 || p.running < p.slots) {
		l := p.turns[0]
		p.turns = slices.Delete(p.turns, 0, 1)
		l.inTurns = false
		if l.waiting == 0 || l.running >= l.slots { // they have changed since the line was enlisted
			continue
		}
		value = l.removeFirst()
		l.running++
		p.running++
		p.enlist(l)
		return value, l, true
	}
	return value, nil, false
}
