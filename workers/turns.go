package workers

import (
	"slices"
	"sync"
)

// turns shares the slots that a pool has over all its kinds. While there are too few, the kinds
// that wait take turns, one handler each, so that one with a flood of tasks does not keep the
// others from theirs. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	slots   int // 0: as many as the kinds have
	running int
	lines   []*line // of the kinds that wait, whose turn is next first
}

// line is what waits of one kind, first come first.
type line struct {
	kind    *kind
	waiting []chan struct{} // closed when its turn has come
}

// set changes the number of slots. More are used at once; fewer as handlers return.
func (t *turns) set(slots int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots = slots
	t.serve()
}

// wait waits for a slot, which is to be given back, or until stop is closed: then it reports false.
func (t *turns) wait(k *kind, stop <-chan struct{}) bool {
	t.mu.Lock()
	if t.free() && len(t.lines) == 0 {
		t.running++
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	i := slices.IndexFunc(t.lines, func(l *line) bool { return l.kind == k })
	if i < 0 {
		i = len(t.lines)
		t.lines = append(t.lines, &line{kind: k})
	}
	t.lines[i].waiting = append(t.lines[i].waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-stop:
	}
	t.leave(turn)
	return false
}

// leave ends a wait, or gives back the slot if its turn has come meanwhile.
func (t *turns) leave(turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, l := range t.lines {
		if j := slices.Index(l.waiting, turn); j >= 0 {
			l.waiting = slices.Delete(l.waiting, j, j+1)
			if len(l.waiting) == 0 {
				t.lines = slices.Delete(t.lines, i, i+1)
			}
			return
		}
	}
	t.running--
	t.serve()
}

// give gives a slot back.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.serve()
}

func (t *turns) free() bool { return t.slots == 0 || t.running < t.slots }

// serve gives free slots to those who wait, kind by kind. t.mu is held.
func (t *turns) serve() {
	for t.free() && len(t.lines) > 0 {
		l := t.lines[0]
		t.lines = t.lines[1:]
		t.running++
		close(l.waiting[0])
		if l.waiting = l.waiting[1:]; len(l.waiting) > 0 {
			t.lines = append(t.lines, l)
		}
	}
}
