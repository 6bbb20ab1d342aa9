package scheduler

import (
	"github.com/taskledger/taskledger/ledger"
)

// maxSuccessors bounds the predecessors of waiting tasks in memory, about half a kilobyte each.
const maxSuccessors = 100_000

// successor is a task that waits for its predecessors.
type successor struct {
	key      ledger.Key
	version  ledger.Version // of the event that names the predecessors
	hasMoved bool           // that event is not its last
	after    ledger.After
}

// successors finds the tasks that wait for a task. It copies a part of the ledger: a walk finds the tasks that do not
// fit in. The zero value is not usable, see newSuccessors. It is for one goroutine.
type successors struct {
	limit   int
	size    int // number of predecessors of waiting
	waiting map[ledger.Key]*successor
	of      map[ledger.Key]map[*successor]struct{}
}

func newSuccessors(limit int) successors {
	return successors{
		limit: limit, waiting: make(map[ledger.Key]*successor),
		of: make(map[ledger.Key]map[*successor]struct{}),
	}
}

// add adds a task unless it is present or there is no room. It reports whether the task is present.
func (g *successors) add(s *successor) bool {
	if known := g.waiting[s.key]; known != nil {
		if known.version >= s.version {
			return true
		}
		g.remove(s.key)
	}
	if g.size+len(s.after.Keys) > g.limit {
		return false
	}
	g.size += len(s.after.Keys)
	g.waiting[s.key] = s
	for _, k := range s.after.Keys {
		if g.of[k] == nil {
			g.of[k] = make(map[*successor]struct{}, 1)
		}
		g.of[k][s] = struct{}{}
	}
	return true
}

// makeRoom removes arbitrary tasks until a task with n predecessors fits in. It reports whether it removed any.
func (g *successors) makeRoom(n int) (hasRemoved bool) {
	for k := range g.waiting {
		if g.size+n <= g.limit {
			break
		}
		g.remove(k)
		hasRemoved = true
	}
	return hasRemoved
}

// remove removes a task.
func (g *successors) remove(k ledger.Key) {
	s := g.waiting[k]
	if s == nil {
		return
	}
	delete(g.waiting, k)
	g.size -= len(s.after.Keys)
	for _, k := range s.after.Keys {
		delete(g.of[k], s)
		if len(g.of[k]) == 0 {
			delete(g.of, k)
		}
	}
}

// turns is a queue that gives each kind its turn: many tasks of one kind delay no task of another kind. Each task is
// queued once. It is for one goroutine.
type turns struct {
	n      int
	kinds  []ledger.Kind // kinds with tasks, the next kind first
	queues map[ledger.Kind][]*successor
	keys   map[ledger.Key]struct{} // of all tasks
}

func (t *turns) add(s *successor) {
	if t.queues == nil {
		t.queues, t.keys = make(map[ledger.Kind][]*successor), make(map[ledger.Key]struct{})
	}
	if _, isQueued := t.keys[s.key]; isQueued {
		return
	}
	t.keys[s.key] = struct{}{}
	if len(t.queues[s.key.Kind]) == 0 {
		t.kinds = append(t.kinds, s.key.Kind)
	}
	t.queues[s.key.Kind] = append(t.queues[s.key.Kind], s)
	t.n++
}

// take removes and returns up to n tasks, one of each kind in turn.
func (t *turns) take(n int) (taken []*successor) {
	n = min(n, t.n)
	t.n -= n
	for len(taken) < n {
		kind := t.kinds[0]
		t.kinds = t.kinds[1:]
		queue := t.queues[kind]
		taken = append(taken, queue[0])
		delete(t.keys, queue[0].key)
		if len(queue) == 1 {
			delete(t.queues, kind)
			continue
		}
		t.queues[kind] = queue[1:]
		t.kinds = append(t.kinds, kind)
	}
	return taken
}
