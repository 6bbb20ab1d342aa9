package dispatch

import "time"

// Event is an event of the feed, as far as the dispatcher needs it.
type Event struct {
	Task

	Change     Change
	Author     string // the actor of the event
	IsStart    bool   // an attempt begins, and uses tokens
	RecordedAt time.Time
}

// Change is an event's effect on a task.
type Change int

// The effects of events.
const (
	Ended     Change = iota // it is not available any more: finished, waiting, in need of a person
	Available               // it may begin
	Begun                   // Task.Actor has begun it, or made progress
)

// Open records that a window of the feed is being opened, and returns its ticket for [Dispatcher.Apply]. The window's
// snapshot is taken after the call.
func (d *Dispatcher) Open() (ticket int64) {
	d.opened++
	return d.opened
}

// Apply takes the last events of a window. Windows are applied in the order in which they were opened.
func (d *Dispatcher) Apply(ticket int64, events []Event) {
	d.applied++
	for i := range events {
		d.apply(&events[i])
	}
	left := d.doubts[:0]
	for _, t := range d.doubts {
		switch {
		case d.tasks[t.Key] != t || t.place != doubtful && t.place != gone:
		case !d.isResolved(t, ticket):
			left = append(left, t)
		case t.place == gone:
			delete(d.tasks, t.Key)
		default:
			d.noteEnding(t, false)
			d.noteReturn(t)
			d.enqueue(t)
		}
	}
	clear(d.doubts[len(left):])
	d.doubts = left
	d.sendRecalls()
}

// Applied returns the number of calls of [Dispatcher.Apply], for [Dispatcher.Hint].
func (d *Dispatcher) Applied() int64 { return d.applied }

// Hint takes available tasks ahead of the window that delivers them. The caller has read them from the ledger by a
// statement that began after a call of [Dispatcher.Applied] with this result. It leaves out tasks whose events were in
// the windows applied until then. If events were applied since, Hint takes nothing and reports false: one of them may
// have ended a task that the statement still found. Windows deliver the tasks that are left out.
func (d *Dispatcher) Hint(applied int64, tasks []Task) bool {
	if applied != d.applied && d.mutant != lateHints {
		return false
	}
	for _, t := range tasks {
		q := d.queues[t.Key.Kind]
		if q == nil || d.tasks[t.Key] != nil {
			continue
		}
		if d.fits(q, &t) {
			d.add(q, t, false)
		}
	}
	return true
}

// isResolved reports whether a doubtful task is known to be available, or gone, after a window.
func (d *Dispatcher) isResolved(t *task, ticket int64) bool {
	isLater := ticket > t.ticket || ticket == t.ticket && d.mutant == earlierWindow
	return isLater && (!t.isUnverified || d.mutant == isUnverified)
}

func (d *Dispatcher) apply(e *Event) {
	d.pass(e)
	t, q := d.tasks[e.Key], d.queues[e.Key.Kind]
	if q != nil && q.moved != nil && (t == nil || t.Version < e.Version || d.mutant != forgetsKnown) {
		// Even if the event is known: the task may be forgotten before the read ends.
		q.moved[e.Key] = max(q.moved[e.Key], e.Version)
	}
	if t != nil && t.Version >= e.Version { // known from a read, or a worker claims to hold a later version
		t.isBeingRead = false
		return
	}
	if t != nil && e.Change == Begun {
		d.begin(t, e)
		return
	}
	if t != nil {
		d.recall(t, e)
		if t.place == assigned && t.session.Worker == e.Author {
			t.session.idle = max(0, t.session.idle-1)
			d.roomier[t.session] = true
		}
		d.forget(t)
	}
	switch {
	case q == nil || !q.shards.Has(e.Shard): // no worker asks for it: it is read when a worker does
	case e.Change == Available:
		d.add(q, e.Task, false)
	case e.Change == Begun:
		t = &task{Task: e.Task}
		d.tasks[e.Key] = t
		d.begin(t, e)
	}
}

// begin records that a worker has begun a task.
func (d *Dispatcher) begin(t *task, e *Event) {
	isOwn := t.place == assigned && t.session.Worker == e.Actor
	if !isOwn {
		d.recall(t, e)
		d.takeOut(t)
	}
	position := t.Position
	t.Task, t.isReturned = e.Task, false
	t.isUnverified, t.isBeingRead = false, false
	if position != 0 {
		t.Position = position
	}
	switch s := d.holder(t); {
	case isOwn:
	case s == nil || s.hasAnswered(): // the worker is gone, or has dropped the task
		d.doubt(t)
	default:
		d.run(t)
	}
}

// recall notes a task of a session to which another process has appended.
func (d *Dispatcher) recall(t *task, e *Event) {
	if t.place == assigned && t.session.Worker != e.Author {
		t.session.moved = append(t.session.moved, t.Key)
		d.recalls[t.session] = true
	}
}

// sendRecalls sends the recalls of a window. Recalls beyond the size of a message are left out: workers reread the
// heads of their running tasks at intervals.
func (d *Dispatcher) sendRecalls() {
	for s := range d.recalls {
		o := d.probeOf(s)
		o.Moved = s.moved[:min(len(s.moved), maxListed)]
		d.offers = append(d.offers, o)
		s.moved = nil
	}
	clear(d.recalls)
}

// takeOut takes a task from its place.
func (d *Dispatcher) takeOut(t *task) {
	switch t.place {
	case ready:
		q := d.queues[t.Key.Kind]
		d.remove(q, t)
		d.tidy(q)
	case parked:
		d.takeFromGate(t)
	case running:
		delete(d.running[t.Actor], t.Key)
		if len(d.running[t.Actor]) == 0 {
			delete(d.running, t.Actor)
		}
	case assigned:
		if t.session.isFull() {
			d.roomier[t.session] = true
		}
		t.session.holds--
		t.session = nil
		d.noteOnWay(t, false)
	default: // it is in no list
	}
	t.place = outside
}

// forget removes a task from memory.
func (d *Dispatcher) forget(t *task) {
	d.takeOut(t)
	delete(d.tasks, t.Key)
}
