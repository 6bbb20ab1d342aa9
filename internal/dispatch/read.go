package dispatch

import (
	"math"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

const (
	// firstRead is how many tasks the first read of a lane returns, so that the first task starts soon. Each further
	// read returns eight times as many, up to half of the tasks that fit in memory, in all priorities and partitions
	// together.
	firstRead = 1024
	// maxReads is the maximum number of partitions of a level that one call of Reads returns, and that a search finds.
	maxReads = 1000
)

// fits reports whether a task that becomes available is taken into memory, because the ledger contains no earlier task
// of its lane that is not.
func (d *Dispatcher) fits(q *queue, t *Task) bool {
	if q.parked >= d.limit {
		return false
	}
	l := &q.levels[levelOf(t)]
	one := l.known(t.Partition)
	if one == nil {
		return !l.search.isHidden && !d.isFull(l, nil)
	}
	return !one.isSpilled && !d.isFull(l, one)
}

// isFull reports whether a lane, nil for a new one, gets no further task into memory. While a level is full, each lane
// may have its part of it, so that one does not keep the others out.
func (d *Dispatcher) isFull(l *level, one *lane) bool {
	most := d.most()
	switch {
	case l.size < most:
		return false
	case l.partitions == nil && one != nil, l.size >= 2*most:
		return true
	}
	n := 1
	if l.partitions != nil {
		n += len(l.lanes)
	}
	return one != nil && one.size >= max(1, most/n)
}

// add takes an available task into memory, unless it can be read later: its lane is full or spilled, or no worker takes
// its shard.
func (d *Dispatcher) add(q *queue, t Task, isRead bool) {
	if !q.shards.Has(t.Shard) {
		return
	}
	if !isRead && !d.fits(q, &t) && !d.leaveOut(q, t) {
		return
	}
	t.IsAgain = t.IsAgain || t.Position <= d.againThrough
	added := &task{Task: t}
	d.tasks[t.Key] = added
	d.enqueue(added)
}

// leaveOut leaves a task that does not fit to the ledger. It reports false if the task must be in memory, because it
// precedes the place of its lane.
func (d *Dispatcher) leaveOut(q *queue, t Task) (isInMemory bool) {
	l := &q.levels[levelOf(&t)]
	one := l.known(t.Partition)
	d.spilled[q.kind] = q
	switch {
	case one != nil && !one.isSpilled:
		l.spill(one, t.Position-1)
	case one != nil:
	case d.hasManyLanes(l):
		if l.search.isHidden {
			l.search.isMissed = true
		} else {
			l.search.again()
		}
		return false
	default:
		isHidden := l.search.isHidden
		if one = l.lane(t.Partition); !isHidden {
			l.spill(one, t.Position-1)
		}
	}
	if t.Position <= one.place {
		return true
	}
	if one.isReading {
		one.arrive(t, d.part(l)/2)
	}
	return false
}

// hasManyLanes reports whether a level has as many lanes as it may have tasks.
func (d *Dispatcher) hasManyLanes(l *level) bool {
	return l.partitions != nil && len(l.lanes) >= d.most()
}

// part returns how many tasks of a spilled lane may be ready in memory.
func (d *Dispatcher) part(l *level) int {
	n := l.spilledLanes()
	if l.plain.isSpilled {
		n++
	}
	return max(1, d.most()/max(1, n))
}

// spillAll records that the ledger contains tasks of a level that are not in memory.
func (d *Dispatcher) spillAll(q *queue, l *level) {
	l.spillAll()
	if d.mutant == forgetsPartitions {
		l.search.isHidden = false
	}
	d.spilled[q.kind] = q
}

// noteRead notes that a lane may have to be read, because a task has left it.
func (d *Dispatcher) noteRead(q *queue, t *task) {
	l := &q.levels[levelOf(&t.Task)]
	if one := l.known(t.Partition); one != nil && d.wants(q, l, one) {
		l.expect(one)
	}
}

// Read is a request to read the tasks of a kind, a priority and a partition that are available or have begun, by
// position.
type Read struct {
	Kind      ledger.Kind
	Priority  ledger.Priority
	Partition string
	After     ledger.Position
	Limit     int
}

// Search is a request for the partitions of a kind and a priority that have such tasks: the next ones after Partition
// in the list of unfinished tasks, by name and at most Limit, and all in the events after the list and After.
type Search struct {
	Kind      ledger.Kind
	Priority  ledger.Priority
	Partition string
	After     ledger.Position
	Limit     int
}

// Found is the answer to a [Search].
type Found struct {
	Listed   []string        // from the list
	Unlisted []string        // from the events
	IsEnd    bool            // the list has no further ones
	Reached  ledger.Position // the position of the last event that was read
	IsWhole  bool            // no event follows it
}

// Reads returns the requests to the ledger, each once. The caller executes a statement for each that begins after the
// call, and passes its rows to [Dispatcher.TakeRead].
func (d *Dispatcher) Reads() (reads []Read) {
	if !d.isActive {
		return nil
	}
	for _, q := range d.spilled {
		continuing := q.continuing()
		for i := range q.levels {
			l := &q.levels[i]
			read := func(one *lane) {
				if !d.wants(q, l, one) {
					return
				}
				if q.reading++; q.moved == nil {
					q.moved = map[ledger.Key]ledger.Version{}
				}
				one.isReading, one.skipped = true, 0
				one.step = min(max(firstRead, 8*one.step), max(1, d.part(l)/2/continuing))
				reads = append(reads, Read{q.kind, ledger.Priority(i + 1), one.partition, one.place, one.step})
			}
			read(&l.plain)
			if l.partitions == nil {
				continue
			}
			due := l.due[:min(len(l.due), maxReads)]
			for _, one := range due {
				one.isDue = false
				read(one)
			}
			l.due = slices.Delete(l.due, 0, len(due))
		}
	}
	return reads
}

// Searches returns the requests for partitions that are not in memory, each once. The caller executes the statements of
// each after the call: for the list, and then for the events. It passes their rows to [Dispatcher.TakeSearch].
func (d *Dispatcher) Searches() (searches []Search) {
	if !d.isActive {
		return nil
	}
	for _, q := range d.spilled {
		for i := range q.levels {
			l := &q.levels[i]
			if !d.wantsSearch(q, l) {
				continue
			}
			s := &l.search
			s.isReading = true
			after := s.after
			if s.isWhole {
				after = math.MaxInt64
			}
			searches = append(searches, Search{q.kind, ledger.Priority(i + 1), s.partition, after, maxReads})
		}
	}
	return searches
}

// WantsReads reports whether [Dispatcher.Reads], [Dispatcher.Searches], [Dispatcher.Unverified] or
// [Dispatcher.PermitReads] would return anything.
func (d *Dispatcher) WantsReads() bool {
	for _, l := range d.limits {
		if l.wantsRead && !l.isReading {
			return true
		}
	}
	for _, q := range d.spilled {
		for i := range q.levels {
			l := &q.levels[i]
			if d.isActive && (d.wants(q, l, &l.plain) || l.partitions != nil && len(l.due) > 0 || d.wantsSearch(q, l)) {
				return true
			}
		}
	}
	return slices.ContainsFunc(d.doubts, d.mustBeVerified)
}

// wants reports whether tasks of a lane should be read.
func (d *Dispatcher) wants(q *queue, l *level, one *lane) bool {
	return one.isSpilled && !one.isReading && q.shards != 0 && q.parked < d.limit && one.size <= d.part(l)/2 &&
		(one.size == 0 || l.size < 2*d.most())
}

// wantsSearch reports whether the partitions of a level should be searched.
func (d *Dispatcher) wantsSearch(q *queue, l *level) bool {
	return l.search.isHidden && !l.search.isReading && q.shards != 0 && !d.hasManyLanes(l)
}

// TakeSearch takes the answer to a search, or that it has failed.
func (d *Dispatcher) TakeSearch(r Search, f Found, failed bool) {
	q := d.queues[r.Kind]
	if q == nil {
		return // its workers have left meanwhile
	}
	l := &q.levels[r.Priority.Level()-1]
	s := &l.search
	if !s.isReading {
		return
	}
	isStale := s.isStale
	if s.isReading, s.isStale = false, false; failed || isStale {
		return
	}
	for _, partition := range f.Unlisted {
		s.isMissed = !d.reveal(l, partition) || s.isMissed
	}
	if s.isWhole = s.isWhole || f.IsWhole; !s.isWhole { // the list is searched when all events are
		s.after = max(s.after, f.Reached)
		return
	}
	for _, partition := range f.Listed {
		if !d.reveal(l, partition) {
			return
		}
		s.partition = partition
	}
	switch {
	case !f.IsEnd:
	case s.isMissed:
		s.again()
	default:
		s.isHidden = false
		d.tidySpilled(q)
	}
}

// reveal makes a lane for a partition that the ledger contains, if it has none. It reports false if there are too many.
func (d *Dispatcher) reveal(l *level, partition string) bool {
	if l.known(partition) == nil && d.hasManyLanes(l) {
		return false
	}
	l.lane(partition)
	return true
}

// TakeRead takes the answer to a request: the tasks up to a position. isEnd is set if no tasks follow that position. A
// failed read is an answer without tasks, up to position 0. Tasks whose priority or partition has changed since they
// were listed may be among the tasks.
func (d *Dispatcher) TakeRead(r Read, tasks []Task, through ledger.Position, isEnd bool) {
	q := d.queues[r.Kind]
	if q == nil {
		return // its workers have left meanwhile
	}
	l := &q.levels[r.Priority.Level()-1]
	one := l.known(r.Partition)
	if one == nil || !one.isReading {
		return
	}
	if d.mutant == skipsLate {
		one.late, one.skipped = nil, 0
	}
	lateThrough := through
	if isEnd {
		lateThrough = math.MaxInt64
	}
	for _, t := range slices.Concat(tasks, one.arrived(lateThrough)) {
		d.takeRead(q, t)
	}
	l.finishRead(one, through, isEnd)
	if d.wants(q, l, one) {
		l.expect(one)
	}
	if q.reading--; q.reading == 0 {
		q.moved = nil
	}
	d.tidySpilled(q)
}

// tidySpilled forgets a queue that is wholly in memory.
func (d *Dispatcher) tidySpilled(q *queue) {
	if !q.isSpilled() {
		delete(d.spilled, q.kind)
	}
}

// takeRead takes a task that was read into memory.
func (d *Dispatcher) takeRead(q *queue, t Task) {
	known := d.tasks[t.Key]
	switch {
	case q.moved[t.Key] > t.Version && d.mutant != readsOld: // by a window that was applied meanwhile
	case known != nil && known.Version == t.Version && known.place != gone:
		known.isUnverified, known.isBeingRead = false, false
		if known.place == ready {
			d.remove(q, known)
			known.Position, known.Priority, known.Partition = t.Position, t.Priority, t.Partition
			d.push(q, known)
		} else {
			known.Position, known.Priority, known.Partition = t.Position, t.Priority, t.Partition
		}
	case known != nil && known.Version >= t.Version:
	default:
		if known != nil {
			d.forget(known)
		}
		d.add(q, t, true)
	}
}
