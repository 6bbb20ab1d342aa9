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
	parked   // it waits for the gate of its value, and would be ready
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
	isBeingRead  bool  // to verify it
	isHolder     bool  // it holds a permit of its kind's limit; set when it becomes ready
	isReturned   bool  // if doubtful: its worker has given it back, or ended it
	gate         *gate // if parked
	index        int   // in the heap, if ready or parked
}

// isBefore reports whether a ready task is offered before another: first the tasks that hold a permit.
func (t *task) isBefore(other *task) bool {
	if t.isHolder != other.isHolder {
		return t.isHolder
	}
	return t.Position < other.Position
}

// readyHeap is ordered by the position of the event that made the task available.
type readyHeap []*task

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].isBefore(h[j]) }
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

// queue contains the ready tasks of a kind in the shards that live workers take. A new queue is spilled from the
// beginning at each level, so that start and overflow are one path; so is a queue whose workers take further shards.
type queue struct {
	kind     ledger.Kind
	sessions []*session         // sessions that take the kind, by name
	takers   [ledger.Shards]int // the number of sessions that take a shard
	shards   ledger.ShardSet    // with takers
	turn     int                // which of equal sessions is the first; rises with each offered task

	// Since the last match:
	hasNews bool       // it has got a task
	roomier []*session // sessions that have got room

	levels  [levels]level // by priority
	size    int           // of all levels; tasks in other shards wait for a worker, and do not count as memory
	holders int           // tasks in levels that hold a permit

	reading int                           // lanes that are read
	moved   map[ledger.Key]ledger.Version // while lanes are read: the tasks changed by events
	parked  int                           // tasks that wait for the gates of their values
	served  int64                         // with limits: a number that rises with the last offer
	// turns counts, for each set of shards that a session takes, the offers while tasks of several priorities waited.
	turns map[ledger.ShardSet]int
	// owned are ready tasks that one session alone may have, because its worker has begun them. However many a worker
	// has begun, they do not count as memory of the kind.
	owned map[*session]*readyHeap
}

// filled returns the shards with ready tasks.
func (q *queue) filled() (all ledger.ShardSet) {
	for i := range q.levels {
		all |= q.levels[i].filled
	}
	return all
}

// isSpilled reports whether the ledger contains tasks that are not in memory.
func (q *queue) isSpilled() bool {
	for i := range q.levels {
		if q.levels[i].isSpilled() {
			return true
		}
	}
	return false
}

// continuing returns the number of levels that are spilled and have been read before, at least 1.
func (q *queue) continuing() (n int) {
	for i := range q.levels {
		if q.levels[i].isContinued() {
			n++
		}
	}
	return max(1, n)
}

// cover adds by to the number of sessions of each shard, and recounts the ready tasks. It returns the shards that
// gained their first session, and the shards that lost their last.
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
	for i := range q.levels {
		l := &q.levels[i]
		n := l.size
		l.cover(gained, lost)
		q.size += l.size - n
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
	hasTaker := q.shards.Has(t.Shard)
	q.levels[levelOf(&t.Task)].push(t, hasTaker)
	if hasTaker {
		q.size++
	}
	if t.isHolder {
		q.holders++
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
	hasTaker := q.shards.Has(t.Shard)
	q.levels[levelOf(&t.Task)].remove(t, hasTaker)
	if hasTaker {
		q.size--
	}
	if t.isHolder {
		q.holders--
	}
}

// oldestHolder returns the task that holds a permit and became available first, or nil.
func (q *queue) oldestHolder(shards ledger.ShardSet) (oldest *task) {
	for i := range q.levels {
		if t := q.levels[i].oldestHolder(shards); t != nil && (oldest == nil || t.isBefore(oldest)) {
			oldest = t
		}
	}
	return oldest
}

// next returns the task that a session gets next, or nil: one that its worker has begun, else one that holds a permit,
// else the next of the highest priority, and in each 16th turn the oldest among the next of each priority.
func (q *queue) next(s *session) *task {
	if of := q.ownedBy(s); len(of) > 0 {
		return of[0]
	}
	shards := s.Kinds[q.kind]
	if q.holders > 0 {
		if t := q.oldestHolder(shards); t != nil {
			return t
		}
	}
	highest, others := -1, 0
	for i := range q.levels {
		switch {
		case q.levels[i].filled&shards == 0:
		case highest < 0:
			highest = i
		default:
			others++
		}
	}
	if highest < 0 {
		return nil
	}
	next := q.levels[highest].next(shards)
	if others == 0 {
		return next
	}
	if q.turns == nil {
		q.turns = map[ledger.ShardSet]int{}
	}
	if q.turns[shards]++; q.turns[shards]%share == 0 {
		for i := range q.levels[highest+1:] {
			if t := q.levels[highest+1+i].next(shards); t != nil && t.Position < next.Position {
				next = t
			}
		}
	}
	return next
}

// serve records that a task that next has returned is offered to a session. It is still in the queue.
func (q *queue) serve(s *session, t *task, weights map[string]float64) {
	if t.owner == nil {
		q.levels[levelOf(&t.Task)].serve(t, s.Kinds[q.kind], weights)
	}
}

// keepOrders forgets the orders of partitions among workers that have left.
func (q *queue) keepOrders() {
	for i := range q.levels {
		q.levels[i].keepOrders(func(shards ledger.ShardSet) bool {
			return slices.ContainsFunc(q.sessions, func(s *session) bool { return s.Kinds[q.kind] == shards })
		})
	}
}
