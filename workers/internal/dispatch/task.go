package dispatch

import (
	"container/heap"

	"github.com/taskledger/taskledger/ledger"
)

// place is where a task is in the dispatcher.
type place int

const (
	outside place = iota // not placed yet, or no longer in memory
	ready
	assigned // to a session, under a number
	running  // by a worker whose session has not answered, or which has none
	doubtful // until a window is applied that is opened later
	gone     // until then: an event ended the task that the feed has not delivered yet
)

// task is a task in memory.
type task struct {
	Task

	place   place
	session *session // if assigned
	owner   *session // if ready: the only one that may have it, because its worker has begun it; nil: any
	number  int64    // if assigned
	ticket  int64    // if doubtful or gone: the last window opened before
	// isUnverified is set if the worker's word is all that is known of the task, and not the ledger's.
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

// queue contains the ready tasks of a kind. While it is spilled, the ledger contains further ones after place. They are
// read when most of the others have been offered. A new queue is spilled from the beginning, so that start and overflow
// are one path.
type queue struct {
	kind      ledger.Kind
	ready     readyHeap
	isSpilled bool
	place     ledger.Position
	step      int // tasks of the last read

	isReading bool
	// While isReading: the lowest position that was not taken into memory, or 0; and the tasks changed by events.
	skipped ledger.Position
	moved   map[ledger.Key]ledger.Version
}

func (q *queue) push(t *task) {
	t.place = ready
	heap.Push(&q.ready, t)
}

func (q *queue) remove(t *task) { heap.Remove(&q.ready, t.index) }

// pop removes and returns the first task that a session takes, or nil.
func (q *queue) pop(s *session) *task {
	var others []*task
	defer func() {
		for _, t := range others {
			heap.Push(&q.ready, t)
		}
	}()
	for len(q.ready) > 0 {
		t := heap.Pop(&q.ready).(*task)
		if s.takes(t) {
			return t
		}
		others = append(others, t)
	}
	return nil
}
