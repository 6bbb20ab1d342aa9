package dispatch

import (
	"iter"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

// levels is the number of priorities.
const levels = int(ledger.PriorityLow)

// share is how many offers to workers of the same shards are made for one offer of the task that has waited longest,
// whatever its priority, while tasks of several priorities wait.
const share = 16

// maxIdleLanes is how many lanes without tasks a level remembers at most, because they have had their turn.
const maxIdleLanes = 4096

// level contains the ready tasks of a kind with one priority, in a lane for each partition. Lanes take turns.
type level struct {
	plain  lane            // of the tasks without a partition
	filled ledger.ShardSet // of all lanes
	size   int             // of all lanes
	search discovery
	mutant mutant

	*partitions // nil: no task has one
}

// partitions contains the lanes of a level other than the plain one, and the turns of all.
type partitions struct {
	lanes   map[string]*lane
	counts  [ledger.Shards]int32 // the number of lanes that fill a shard
	orders  []*order             // made when they are needed
	idle    []*lane              // lanes without tasks, or that were without a moment ago
	due     []*lane              // lanes to be read
	spilled int                  // the number of lanes that are spilled
}

// discovery is the search for the partitions of a level that are only in the ledger.
type discovery struct {
	isHidden  bool // there may be some
	isReading bool
	isStale   bool // the answer on its way belongs to an earlier search
	isMissed  bool // one was passed: search again
	// The events after the list of unfinished tasks are searched first, from after; then the list, from partition. A
	// task that moves from the events into the list meanwhile is found.
	isWhole   bool
	after     ledger.Position
	partition string
}

// again searches from the beginning.
func (s *discovery) again() {
	s.isHidden, s.isStale, s.isMissed = true, s.isReading, false
	s.isWhole, s.after, s.partition = false, 0, ""
}

// levelOf returns the index of a task's level.
func levelOf(t *Task) int { return int(t.Priority.Level()) - 1 }

// known returns the lane of a partition, or nil.
func (l *level) known(partition string) *lane {
	if partition == "" {
		return &l.plain
	}
	if l.partitions == nil {
		return nil
	}
	return l.lanes[partition]
}

// lane returns the lane of a partition, and makes it if it is missing. The ledger may contain all tasks of a new lane
// if the search for partitions has not ended.
func (l *level) lane(partition string) *lane {
	if known := l.known(partition); known != nil {
		return known
	}
	if l.partitions == nil {
		l.partitions = &partitions{lanes: map[string]*lane{}}
		for s := range l.plain.filled.Shards() {
			l.counts[s] = 1
		}
	}
	added := &lane{partition: partition}
	l.lanes[partition] = added
	if l.search.isHidden {
		l.spill(added, 0)
	}
	return added
}

// all returns the lanes, in any order.
func (l *level) all() iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		if !yield(&l.plain) || l.partitions == nil {
			return
		}
		for _, one := range l.lanes {
			if !yield(one) {
				return
			}
		}
	}
}

// spill records that the ledger contains tasks of a lane after a place.
func (l *level) spill(one *lane, place ledger.Position) {
	if !one.isPlain() && !one.isSpilled {
		l.spilled++
	}
	one.spill(place)
	l.expect(one)
}

// spillAll records that the ledger contains tasks of all partitions.
func (l *level) spillAll() {
	for one := range l.all() {
		l.spill(one, 0)
	}
	l.search.again()
}

// expect adds a spilled lane to those to be read.
func (l *level) expect(one *lane) {
	if !one.isPlain() && one.isSpilled && !one.isReading && !one.isDue {
		one.isDue = true
		l.due = append(l.due, one)
	}
}

// isSpilled reports whether the ledger contains tasks that are not in memory.
func (l *level) isSpilled() bool {
	return l.plain.isSpilled || l.search.isHidden || l.spilledLanes() > 0
}

// spilledLanes returns the number of partitions' lanes that are spilled.
func (l *level) spilledLanes() int {
	if l.partitions == nil {
		return 0
	}
	return l.spilled
}

// isContinued reports whether the level is spilled and has been read before.
func (l *level) isContinued() bool {
	return l.plain.isSpilled && l.plain.step > 0 || l.spilledLanes() > 0
}

// finishRead ends a read of a lane.
func (l *level) finishRead(one *lane, through ledger.Position, isEnd bool) {
	wasSpilled := one.isSpilled
	one.finishRead(through, isEnd)
	if !one.isPlain() && wasSpilled && !one.isSpilled {
		l.spilled--
	}
	if !one.isPlain() {
		l.retire(one)
	}
}

func (l *level) push(t *task, hasTaker bool) {
	one := l.lane(t.Partition)
	t.Partition = one.partition // one text for all tasks of the lane
	wasFilled := one.filled.Has(t.Shard)
	one.push(t, hasTaker)
	if hasTaker {
		l.size++
	}
	l.filled |= 1 << t.Shard
	if l.partitions == nil || wasFilled {
		return
	}
	l.counts[t.Shard]++
	for _, o := range l.orders {
		if o.shards.Has(t.Shard) {
			o.enter(one)
		}
	}
}

func (l *level) remove(t *task, hasTaker bool) {
	one := l.known(t.Partition)
	one.remove(t, hasTaker)
	if hasTaker {
		l.size--
	}
	if one.filled.Has(t.Shard) {
		return
	}
	if l.partitions == nil {
		l.filled &^= 1 << t.Shard
		return
	}
	if l.counts[t.Shard]--; l.counts[t.Shard] == 0 {
		l.filled &^= 1 << t.Shard
	}
	for _, o := range l.orders {
		if o.shards.Has(t.Shard) && one.filled&o.shards == 0 {
			o.leave(one)
		}
	}
	l.retire(one)
}

// retire notes that a lane may be without tasks. It is forgotten once nothing is owed by it, or if there are many.
func (l *level) retire(one *lane) {
	if !one.isPlain() && one.isEmpty() && !one.isIdle {
		one.isIdle = true
		l.idle = append(l.idle, one)
	}
	for range min(2, len(l.idle)) {
		first := l.idle[0]
		if first.isEmpty() {
			if !first.isPast() && len(l.idle) <= maxIdleLanes {
				return
			}
			l.forget(first)
		}
		first.isIdle = false
		l.idle[0] = nil
		l.idle = l.idle[1:]
	}
	if len(l.lanes) == 0 {
		l.partitions, l.plain.turns = nil, nil
	}
}

// forget removes a lane without tasks.
func (l *level) forget(one *lane) {
	delete(l.lanes, one.partition)
	if one.isDue {
		l.due = slices.DeleteFunc(l.due, func(other *lane) bool { return other == one })
	}
}

// cover counts the ready tasks of shards that have gained their first taker or lost their last.
func (l *level) cover(gained, lost ledger.ShardSet) {
	if (gained|lost)&l.filled == 0 {
		return
	}
	for one := range l.all() {
		n := one.size
		for shard := range (gained & one.filled).Shards() {
			one.size += one.of(shard).Len()
		}
		for shard := range (lost & one.filled).Shards() {
			one.size -= one.of(shard).Len()
		}
		l.size += one.size - n
	}
}

// in returns the ready tasks of shards.
func (l *level) in(shards ledger.ShardSet) (tasks []*task) {
	if shards&l.filled == 0 {
		return nil
	}
	for one := range l.all() {
		for shard := range (shards & one.filled).Shards() {
			tasks = append(tasks, one.of(shard)...)
		}
	}
	return tasks
}

// oldestHolder returns the task in shards that holds a permit and became available first, or nil.
func (l *level) oldestHolder(shards ledger.ShardSet) (oldest *task) {
	for one := range l.all() {
		if one.holders == 0 {
			continue
		}
		if t := one.oldest(shards); t != nil && t.isHolder && (oldest == nil || t.isBefore(oldest)) {
			oldest = t
		}
	}
	return oldest
}

// next returns the oldest task in shards of the lane whose turn it is, or nil.
func (l *level) next(shards ledger.ShardSet) *task {
	if l.partitions == nil {
		return l.plain.oldest(shards)
	}
	if o := l.order(shards); len(o.turns) > 0 {
		return o.turns[0].lane.oldest(shards)
	}
	return nil
}

// serve records that a task is offered to a worker of shards. It is still in the level.
func (l *level) serve(t *task, shards ledger.ShardSet, weights map[string]float64) {
	if l.partitions == nil {
		return
	}
	l.order(shards).serve(l.known(t.Partition), costOf(weights, t.Partition))
}

// order returns the order of the lanes among the workers of shards.
func (l *level) order(shards ledger.ShardSet) *order {
	for _, o := range l.orders {
		if o.shards == shards {
			return o
		}
	}
	o := &order{shards: shards, mutant: l.mutant}
	l.orders = append(l.orders, o)
	for one := range l.all() {
		if one.filled&shards != 0 {
			o.enter(one)
		}
	}
	return o
}

// keepOrders forgets the orders of shards that no session takes.
func (l *level) keepOrders(isUsed func(ledger.ShardSet) bool) {
	if l.partitions == nil || !slices.ContainsFunc(l.orders, func(o *order) bool { return !isUsed(o.shards) }) {
		return
	}
	l.orders = slices.DeleteFunc(l.orders, func(o *order) bool { return !isUsed(o.shards) })
	for one := range l.all() {
		one.turns = slices.DeleteFunc(one.turns, func(t *turn) bool { return !isUsed(t.of.shards) })
	}
}
