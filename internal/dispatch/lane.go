package dispatch

import (
	"container/heap"
	"math/bits"

	"github.com/taskledger/taskledger/ledger"
)

// lane contains the ready tasks of a level with one partition, by position. While it is spilled, the ledger contains
// further tasks after place. They are read when most of the lane's tasks in memory have been offered. So a partition
// never hides another, in memory or in the ledger.
type lane struct {
	partition string

	ready   []readyHeap     // by shard in the plain lane, else of the filled shards; nil until there was one
	filled  ledger.ShardSet // with ready tasks
	size    int             // of ready in shards with takers
	holders int             // of ready: tasks that hold a permit
	turns   []*turn         // in the orders of the level, unless it is the plain lane of a level without others
	isIdle  bool            // it is in the level's list of idle lanes

	isSpilled bool
	place     ledger.Position
	step      int // tasks of the last read

	isDue     bool // it is in the level's list of lanes to be read
	isReading bool
	// While isReading: the tasks that became available after place, and the lowest position that was not taken into
	// memory, or 0.
	late    []Task
	skipped ledger.Position
}

// isPlain reports whether the lane contains the tasks without a partition. It keeps a heap for each shard. The others
// keep heaps only for the shards that they need, because there may be many.
func (l *lane) isPlain() bool { return l.partition == "" }

// rank returns the index of a shard in ready.
func (l *lane) rank(s ledger.Shard) int {
	if l.isPlain() {
		return int(s)
	}
	return bits.OnesCount64(uint64(l.filled) & (1<<s - 1))
}

// of returns the ready tasks of a shard that has some.
func (l *lane) of(s ledger.Shard) readyHeap { return l.ready[l.rank(s)] }

func (l *lane) push(t *task, hasTaker bool) {
	i := l.rank(t.Shard)
	switch {
	case !l.isPlain():
		if !l.filled.Has(t.Shard) {
			l.ready = append(l.ready, nil)
			copy(l.ready[i+1:], l.ready[i:])
			l.ready[i] = nil
		}
	case l.ready == nil:
		l.ready = make([]readyHeap, ledger.Shards)
	}
	heap.Push(&l.ready[i], t)
	l.filled |= 1 << t.Shard
	if hasTaker {
		l.size++
	}
	if t.isHolder {
		l.holders++
	}
}

func (l *lane) remove(t *task, hasTaker bool) {
	i := l.rank(t.Shard)
	heap.Remove(&l.ready[i], t.index)
	if l.ready[i].Len() == 0 {
		l.filled &^= 1 << t.Shard
		if !l.isPlain() {
			copy(l.ready[i:], l.ready[i+1:])
			l.ready = l.ready[:len(l.ready)-1]
		}
	}
	if hasTaker {
		l.size--
	}
	if t.isHolder {
		l.holders--
	}
}

// oldest returns the task in shards that holds a permit, or else became available first, or nil.
func (l *lane) oldest(shards ledger.ShardSet) (oldest *task) {
	for shard := range (shards & l.filled).Shards() {
		if t := l.of(shard)[0]; oldest == nil || t.isBefore(oldest) {
			oldest = t
		}
	}
	return oldest
}

// spill records that the ledger contains tasks of the lane, after a place, that are not in memory.
func (l *lane) spill(place ledger.Position) {
	l.isSpilled, l.place, l.step = true, place, 0
	if l.isReading { // from a later place
		l.skipped = place + 1
	}
}

// arrive takes a task that became available while the lane is read: the read may not contain it. Tasks beyond most
// are read next time.
func (l *lane) arrive(t Task, most int) {
	switch {
	case len(l.late) < most:
		l.late = append(l.late, t)
	case l.skipped == 0 || t.Position < l.skipped:
		l.skipped = t.Position
	}
}

// arrived returns the tasks that arrived up to a position, and not after a task that was skipped.
func (l *lane) arrived(through ledger.Position) (all []Task) {
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

// finishRead ends a read that returned all tasks up to a position, and all of the lane if isEnd is set.
func (l *lane) finishRead(through ledger.Position, isEnd bool) {
	l.place = max(l.place, through)
	if isEnd && l.skipped == 0 {
		l.isSpilled = false
	}
	if l.skipped > 0 { // further events committed during the read are read next time
		l.place = min(l.place, l.skipped-1)
	}
	l.isReading, l.late = false, nil
}

// isEmpty reports whether the lane is without tasks, in memory and in the ledger.
func (l *lane) isEmpty() bool { return l.filled == 0 && !l.isSpilled && !l.isReading }
