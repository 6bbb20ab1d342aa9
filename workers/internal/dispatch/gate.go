package dispatch

import "github.com/taskledger/taskledger/ledger"

// gate holds back the tasks of a kind with a concurrency limit. While as many tasks of the kind hold a permit, or are
// on their way to take one, no further task is offered. The database enforces the limit. A gate that is wrong costs
// time: a start is refused, or a permit is not used.
type gate struct {
	limit int
	uses  map[ledger.Key]use // of permits
	// isKnown: the permits in use were read. Until then the gate is closed.
	isKnown bool
	// returned is the number of tasks that workers have given back, and that have no start in the ledger. Their starts
	// may have been refused, because transactions that are still open hold permits. So as many permits are not used
	// until Retry.
	returned int

	isReading bool
	moved     map[ledger.Key]use // while isReading: the tasks changed by events
	wantsRead bool
}

// use is a task's use of a permit. It counts once, even if the task that is offered still holds the permit of an
// attempt whose worker is gone.
type use struct {
	version ledger.Version // of the last event that is known
	isHeld  bool           // by an attempt that has started
	isOnWay bool           // the task is assigned to a session
}

// Permit is a permit in use, as read from the ledger.
type Permit struct {
	Key     ledger.Key
	Version ledger.Version // of the start
}

// isClosed reports whether only tasks that hold a permit may be offered.
func (g *gate) isClosed() bool { return g.room() == 0 }

// room returns how many further tasks may be offered.
func (g *gate) room() int {
	if !g.isKnown {
		return 0
	}
	return max(0, g.limit-len(g.uses)-g.returned)
}

// set records a task's use of a permit.
func (g *gate) set(k ledger.Key, u use) {
	if u.isHeld || u.isOnWay {
		g.uses[k] = u
	} else {
		delete(g.uses, k)
	}
}

// apply takes an event of the kind.
func (g *gate) apply(e *Event) {
	u := g.uses[e.Key]
	u.version, u.isHeld = e.Version, e.Change == Begun
	g.set(e.Key, u)
	if g.isReading {
		g.moved[e.Key] = u
	}
}

// setOnWay records that a task is assigned to a session, or no longer.
func (g *gate) setOnWay(k ledger.Key, is bool) {
	u := g.uses[k]
	u.isOnWay = is
	g.set(k, u)
}

// Limit sets the concurrency limits of kinds.
func (d *Dispatcher) Limit(limits map[ledger.Kind]int) {
	for kind := range d.gates {
		if _, isLimited := limits[kind]; !isLimited {
			delete(d.gates, kind)
			for _, t := range d.tasks {
				if t.Key.Kind == kind {
					d.setHolder(t, false)
				}
			}
			d.reopen(kind)
		}
	}
	for kind, limit := range limits {
		g := d.gates[kind]
		if g == nil {
			if d.gates == nil {
				d.gates = map[ledger.Kind]*gate{}
			}
			g = &gate{uses: map[ledger.Key]use{}, wantsRead: true}
			d.gates[kind] = g
			for k, t := range d.tasks {
				if k.Kind == kind && t.place == assigned {
					g.setOnWay(k, true)
				}
			}
		}
		if g.limit != limit {
			g.limit, g.wantsRead = limit, true
			d.reopen(kind)
		}
	}
}

// Retry lets tasks of limited kinds try again whose starts may have been refused: half of them. The caller calls it at
// intervals, because no event shows that a transaction was rolled back.
func (d *Dispatcher) Retry() {
	for kind, g := range d.gates {
		if g.returned > 0 {
			g.returned /= 2
			d.reopen(kind)
		}
	}
}

// noteReturn notes in the gate of its kind that a task was given back without a start.
func (d *Dispatcher) noteReturn(t *task) {
	if g := d.gates[t.Key.Kind]; g != nil && t.isReturned && !g.uses[t.Key].isHeld {
		g.returned = min(g.limit, g.returned+1)
	}
	t.isReturned = false
}

// reopen considers the ready tasks of a kind, whose gate may have opened.
func (d *Dispatcher) reopen(kind ledger.Kind) {
	if q := d.queues[kind]; q != nil && q.hasTasks() {
		d.expect(q)
	}
}

// RereadPermits requests a read of the permits of all limited kinds.
func (d *Dispatcher) RereadPermits() {
	for _, g := range d.gates {
		g.wantsRead = true
	}
}

// PermitReads returns, each once, the kinds whose permits in use must be read. The caller reads them by a statement
// that begins after the call, and passes them to [Dispatcher.TakePermits].
func (d *Dispatcher) PermitReads() (kinds []ledger.Kind) {
	for kind, g := range d.gates {
		if g.wantsRead && !g.isReading {
			g.wantsRead, g.isReading, g.moved = false, true, map[ledger.Key]use{}
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// TakePermits takes the permits of a kind that are in use, or the failure of their read.
func (d *Dispatcher) TakePermits(kind ledger.Kind, permits []Permit, failed bool) {
	g := d.gates[kind]
	if g == nil || !g.isReading {
		return // the limit was removed meanwhile
	}
	moved := g.moved
	g.isReading, g.moved = false, nil
	if failed {
		g.wantsRead = true
		return
	}
	held := make(map[ledger.Key]ledger.Version, len(permits))
	for _, p := range permits {
		if moved[p.Key].version <= p.Version {
			held[p.Key] = p.Version
		}
	}
	for k, u := range moved {
		if u.isHeld && held[k] == 0 {
			held[k] = u.version
		}
	}
	for k, u := range g.uses {
		if held[k] == 0 {
			u.isHeld = false
			g.set(k, u)
			d.setHolder(d.tasks[k], false)
		}
	}
	for k, version := range held {
		u := g.uses[k]
		u.version, u.isHeld = max(u.version, version), true
		g.set(k, u)
		d.setHolder(d.tasks[k], true)
	}
	g.isKnown = true
	d.reopen(kind)
}

// setHolder records whether a task holds a permit. A ready task that does goes first, even while the gate is closed.
func (d *Dispatcher) setHolder(t *task, is bool) {
	if t == nil || t.isHolder == is {
		return
	}
	if t.place != ready {
		t.isHolder = is
		return
	}
	q := d.queues[t.Key.Kind]
	d.remove(q, t)
	t.isHolder = is
	d.push(q, t)
}

// pass applies an event to the gate of its kind.
func (d *Dispatcher) pass(e *Event) {
	g := d.gates[e.Key.Kind]
	if g == nil {
		return
	}
	_, isKnown := g.uses[e.Key]
	if t := d.tasks[e.Key]; !isKnown && e.Version > 1 && (t == nil || !t.isReturned) {
		g.returned = max(0, g.returned-1) // a transaction that held a permit may have ended
	}
	g.apply(e)
	if e.Change != Begun {
		d.reopen(e.Key.Kind)
	}
}

// noteOnWay records in the gate of a task's kind whether the task is assigned.
func (d *Dispatcher) noteOnWay(k ledger.Key, is bool) {
	g := d.gates[k.Kind]
	if g == nil {
		return
	}
	g.setOnWay(k, is)
	if !is {
		d.reopen(k.Kind)
		d.wantsWindow = d.wantsWindow || g.uses[k].isHeld
	}
}

// WantsWindow reports, once, whether a worker has ended a task with a permit before the feed has delivered its end. A
// window that is opened soon lets the next task begin soon.
func (d *Dispatcher) WantsWindow() bool {
	is := d.wantsWindow
	d.wantsWindow = false
	return is
}

// room returns how many of the ready tasks of a queue may be offered now, without those that hold a permit.
func (d *Dispatcher) room(q *queue) int {
	if g := d.gates[q.kind]; g != nil {
		return min(q.size, g.room())
	}
	return q.size
}

// mayOffer reports whether the gate of a task's kind lets it pass.
func (d *Dispatcher) mayOffer(t *task) bool {
	g := d.gates[t.Key.Kind]
	return g == nil || t.isHolder || !g.isClosed()
}
