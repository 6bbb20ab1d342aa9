package dispatch

import (
	"container/heap"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

// place is where a task is in the dispatcher.
type place int

const (
	outside place = iota // not placed yet, or no longer in memory
	ready
	assigned // to a session, under a number
	running  // by a worker whose session has not answered, or which has none
	doubtful // until a window is applied that was opened later
	gone     // until then: an event ended the task that the feed has not delivered yet
)

// task is a task in memory.
type task struct {
	Task

	place   place
	session *session // if assigned
	owner   *session // if ready: the only session that may have it, because its worker has begun it; nil: any
	number  int64    // if assigned
	ticket  int64    // if doubtful or gone: the last window opened before
	// isUnverified is set if only a worker has named the task, and not the ledger.
	isUnverified bool
	isBeingRead  bool // to verify it
	index        int  // in the heap, if ready
}

// readyHeap is ordered by the position of the event that made the task available.
type readyHeap []*task

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].Position < h[j].Position }
func (h readyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *readyHeap) Push(x any) {
	t := x.(*task)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *readyHeap) Pop() any {
	n := len(*h) - 1
	t := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return t
}

// queue contains the ready tasks of a kind in the shards that live workers take. While it is spilled, the ledger
// contains further tasks after place. They are read when most tasks in memory have been offered. A new queue is
// spilled from the beginning, so that start and overflow are one path; so is a queue whose workers take further
// shards.
type queue struct {
	kind     ledger.Kind
	sessions []*session         // sessions that take the kind, by name
	takers   [ledger.Shards]int // the number of sessions that take a shard
	shards   ledger.ShardSet    // with takers
	turn     int                // which of equal sessions is the first; rises with each offered task

	// Since the last match:
	hasNews bool       // it has got a task
	roomier []*session // sessions that have got room

	ready  [ledger.Shards]readyHeap
	filled ledger.ShardSet // with ready tasks
	size   int             // of ready in shards; the others wait for a worker, and do not count as memory of the kind
	// owned are ready tasks that one session alone may have, because its worker has begun them. However many a worker
	// has begun, they do not count as memory of the kind.
	owned map[*session]*readyHeap

	isSpilled bool
	place     ledger.Position
	step      int // tasks of the last read

	isReading bool
	// While isReading: the tasks that became available after place; the lowest position that was not taken into memory,
	// or 0; and the tasks changed by events.
	late    []Task
	skipped ledger.Position
	moved   map[ledger.Key]ledger.Version
}

// arrive takes a task that became available while the kind is read: the read may not contain it. Tasks beyond most are
// read next time.
func (q *queue) arrive(t Task, most int) {
	switch {
	case len(q.late) < most:
		q.late = append(q.late, t)
	case q.skipped == 0 || t.Position < q.skipped:
		q.skipped = t.Position
	}
}

// arrived returns the tasks that arrived up to a position, and not after a task that was skipped.
func (q *queue) arrived(through ledger.Position) []Task {
	if q.skipped > 0 {
		through = min(through, q.skipped-1)
	}
	return slices.DeleteFunc(q.late, func(t Task) bool { return t.Position > through })
}

// cover adds by to the number of sessions that take each of the shards, and counts the ready tasks anew. It returns the
// shards that gained their first taker and the shards that lost their last.
func (q *queue) cover(shards ledger.ShardSet, by int) (gained, lost ledger.ShardSet) {
	before := q.shards
	for shard := range shards.Shards() {
		q.takers[shard] += by
		if q.takers[shard] > 0 {
			q.shards |= 1 << shard
		} else {
			q.shards &^= 1 << shard
		}
	}
	gained, lost = q.shards&^before, before&^q.shards
	for shard := range gained.Shards() {
		q.size += q.ready[shard].Len()
	}
	for shard := range lost.Shards() {
		q.size -= q.ready[shard].Len()
	}
	return gained, lost
}

// setSession records whether a session takes the kind.
func (q *queue) setSession(s *session, takes bool) {
	i, isIn := slices.BinarySearchFunc(q.sessions, s, bySession)
	switch {
	case takes && isIn:
		q.sessions[i] = s
	case takes:
		q.sessions = slices.Insert(q.sessions, i, s)
	case isIn && q.sessions[i] == s:
		q.sessions = slices.Delete(q.sessions, i, i+1)
	}
}

// ownedBy returns the ready tasks that one session alone may have.
func (q *queue) ownedBy(s *session) []*task {
	if of := q.owned[s]; of != nil {
		return *of
	}
	return nil
}

// hasTasks reports whether a live worker takes a ready task.
func (q *queue) hasTasks() bool { return q.size > 0 || len(q.owned) > 0 }

func (q *queue) push(t *task) {
	t.place = ready
	if t.owner != nil {
		of := q.owned[t.owner]
		if of == nil {
			of = &readyHeap{}
			q.owned[t.owner] = of
		}
		heap.Push(of, t)
		return
	}
	heap.Push(&q.ready[t.Shard], t)
	q.filled |= 1 << t.Shard
	if q.shards.Has(t.Shard) {
		q.size++
	}
}

func (q *queue) remove(t *task) {
	if t.owner != nil {
		of := q.owned[t.owner]
		if heap.Remove(of, t.index); of.Len() == 0 {
			delete(q.owned, t.owner)
		}
		return
	}
	if q.shards.Has(t.Shard) {
		q.size--
	}
	h := &q.ready[t.Shard]
	if heap.Remove(h, t.index); h.Len() == 0 {
		q.filled &^= 1 << t.Shard
	}
}

// first returns the first task that a session takes, or nil.
func (q *queue) first(s *session) (first *task) {
	shards := s.Kinds[q.kind]
	for shard := range (shards & q.filled).Shards() {
		if t := q.ready[shard][0]; first == nil || t.Position < first.Position {
			first = t
		}
	}
	if of := q.owned[s]; of != nil && (first == nil || (*of)[0].Position < first.Position) {
		return (*of)[0]
	}
	return first
}
