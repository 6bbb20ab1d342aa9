package dispatch

import (
	"container/heap"
	"maps"

	"github.com/taskledger/taskledger/ledger"
)

// order is the order in which the lanes of a level take turns among the workers of a set of shards, by start-time fair
// queueing. The lane with the lowest virtual time is next. Each of its tasks adds the inverse of its weight. A lane
// that gets tasks after a while begins at the last offer's virtual time. So lanes with tasks get offers in proportion
// to their weights, and a lane saves up nothing while it is empty.
type order struct {
	shards ledger.ShardSet
	turns  turnHeap // of the lanes with ready tasks in the shards
	now    float64  // virtual time
	last   float64  // the highest virtual time of a lane
	mutant mutant
}

// turn is the place of a lane in an order.
type turn struct {
	of      *order
	lane    *lane
	virtual float64
	index   int // in the order's heap; -1: not in it
}

// turnHeap is ordered by virtual time.
type turnHeap []*turn

func (h turnHeap) Len() int { return len(h) }
func (h turnHeap) Less(i, j int) bool {
	if h[i].virtual != h[j].virtual {
		return h[i].virtual < h[j].virtual
	}
	return h[i].lane.partition < h[j].lane.partition
}
func (h turnHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *turnHeap) Push(x any) {
	t := x.(*turn)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *turnHeap) Pop() any {
	n := len(*h) - 1
	t := (*h)[n]
	t.index = -1
	(*h)[n] = nil
	*h = (*h)[:n]
	return t
}

// turnOf returns the turn of a lane, a new one if it has none.
func (o *order) turnOf(l *lane) *turn {
	for _, t := range l.turns {
		if t.of == o {
			return t
		}
	}
	t := &turn{of: o, lane: l, index: -1}
	l.turns = append(l.turns, t)
	return t
}

// enter adds a lane with a ready task in the shards.
func (o *order) enter(l *lane) {
	t := o.turnOf(l)
	if t.index >= 0 {
		return
	}
	if o.mutant != savesTurns {
		t.virtual = max(t.virtual, o.now)
	}
	heap.Push(&o.turns, t)
}

// leave removes a lane without ready tasks in the shards. When no lane has any, nothing is owed to one.
func (o *order) leave(l *lane) {
	if t := o.turnOf(l); t.index >= 0 {
		heap.Remove(&o.turns, t.index)
	}
	if len(o.turns) == 0 {
		o.now = max(o.now, o.last)
	}
}

// serve records that a task of a lane is offered.
func (o *order) serve(l *lane, cost float64) {
	t := o.turnOf(l)
	o.now = max(o.now, t.virtual)
	if o.mutant != takesNoTurns {
		t.virtual += cost
	}
	o.last = max(o.last, t.virtual)
	if t.index >= 0 {
		heap.Fix(&o.turns, t.index)
	}
}

// isPast reports whether nothing is owed by a lane without tasks: it would begin at the present virtual time.
func (l *lane) isPast() bool {
	for _, t := range l.turns {
		if t.virtual > t.of.now {
			return false
		}
	}
	return true
}

// SetWeights sets the weights of partitions. A partition without one has the weight 1, and gets half as many offers as
// one of weight 2 while both have tasks. The map must not be changed afterwards.
func (d *Dispatcher) SetWeights(weights map[string]float64) {
	if maps.Equal(d.weights, weights) {
		return
	}
	d.weights = weights
	for _, q := range d.queues {
		for i := range q.levels {
			q.levels[i].reweigh(weights)
		}
	}
}

// reweigh lets no lane wait longer for its next turn than its present weight demands: at a low weight before, its last
// offer may have cost many turns.
func (l *level) reweigh(weights map[string]float64) {
	if l.partitions == nil {
		return
	}
	l.plain.reweigh(costOf(weights, ""))
	for partition, one := range l.lanes {
		one.reweigh(costOf(weights, partition))
	}
}

func (l *lane) reweigh(cost float64) {
	for _, t := range l.turns {
		if t.virtual = min(t.virtual, t.of.now+cost); t.index >= 0 {
			heap.Fix(&t.of.turns, t.index)
		}
	}
}

// costOf returns how much virtual time an offer of a partition's task takes.
func costOf(weights map[string]float64, partition string) float64 {
	if weight := weights[partition]; weight > 0 {
		return 1 / weight
	}
	return 1
}
