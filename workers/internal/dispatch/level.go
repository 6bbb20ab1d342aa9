package dispatch

import (
	"container/heap"

	"github.com/taskledger/taskledger/ledger"
)

// levels is the number of priorities.
const levels = int(ledger.PriorityLow)

// share is how many offers to workers of the same shards are made for one offer of the task that has waited longest,
// whatever its priority, while tasks of several priorities wait.
const share = 16

// level contains the ready tasks of a kind with one priority. While it is spilled, the ledger contains further tasks
// after place. They are read when most tasks in memory have been offered. So the tasks of one priority never hide those
// of another, in memory or in the ledger.
type level struct {
	ready  []readyHeap     // by shard; nil until there was one
	filled ledger.ShardSet // with ready tasks
	size   int             // of ready in shards with takers

	isSpilled bool
	place     ledger.Position
	step      int // tasks of the last read

	isReading bool
	// While isReading: the tasks that became available after place; the lowest position that was not taken into memory,
	// or 0; and the tasks of the kind changed by events.
	late    []Task
	skipped ledger.Position
	moved   map[ledger.Key]ledger.Version
}

// levelOf returns the index of a task's level.
func levelOf(t *Task) int { return int(t.Priority.Level()) - 1 }

// arrive takes a task that became available while the level is read: the read may not contain it. Tasks beyond most
// are read next time.
func (l *level) arrive(t Task, most int) {
	switch {
	case len(l.late) < most:
		l.late = append(l.late, t)
	case l.skipped == 0 || t.Position < l.skipped:
		l.skipped = t.Position
	}
}

// arrived returns the tasks that arrived up to a position, and not after a task that was skipped.
func (l *level) arrived(through ledger.Position) (all []Task) {
	if l.skipped > 0 {
		through = min(through, l.skipped-1)
	}
	for _, t := range l.late {
		if t.Position <= through {
			all = append(all, t)
		}
	}
	return all
}

func (l *level) push(t *task, hasTaker bool) {
	if l.ready == nil {
		l.ready = make([]readyHeap, ledger.Shards)
	}
	heap.Push(&l.ready[t.Shard], t)
	l.filled |= 1 << t.Shard
	if hasTaker {
		l.size++
	}
}

func (l *level) remove(t *task, hasTaker bool) {
	h := &l.ready[t.Shard]
	if heap.Remove(h, t.index); h.Len() == 0 {
		l.filled &^= 1 << t.Shard
	}
	if hasTaker {
		l.size--
	}
}

// oldest returns the task in shards that holds a permit, or else became available first, or nil.
func (l *level) oldest(shards ledger.ShardSet) (oldest *task) {
	for shard := range (shards & l.filled).Shards() {
		if t := l.ready[shard][0]; oldest == nil || t.isBefore(oldest) {
			oldest = t
		}
	}
	return oldest
}
