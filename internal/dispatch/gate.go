package dispatch

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Limit is a limit of starts.
type Limit struct {
	Name       string
	Kinds      map[ledger.Kind]int // with the weight of each in the rate
	Per        ledger.LimitPer     // "": one count
	MaxRunning int                 // -1: any number
	Burst      int                 // tokens; 0: no rate
	Window     time.Duration       // for which a token cannot be used again
}

func (l *Limit) isEqual(other *Limit) bool {
	return l.isLike(other) && l.MaxRunning == other.MaxRunning && l.Burst == other.Burst && l.Window == other.Window
}

// isLike reports whether both apply to the same tasks.
func (l *Limit) isLike(other *Limit) bool {
	return l.Per == other.Per && maps.Equal(l.Kinds, other.Kinds)
}

// valueOf returns the value under which the limit counts a task. It reports false if it does not apply to the task.
func (l *Limit) valueOf(t *Task) (value string, applies bool) {
	switch l.Per {
	case ledger.PerPartition:
		return t.Partition, t.Partition != ""
	case ledger.PerOrderKey:
		return t.OrderKey, t.OrderKey != ""
	default:
		return "", true
	}
}

// limit holds back the tasks of its kinds: by a gate for each value that it counts. While as many tasks hold a permit
// or a token, or are on their way to take one, no further task is offered. The database enforces the limit. A gate
// that is wrong costs time: a start is refused, or a permit is not used.
type limit struct {
	Limit

	gates map[string]*gate
	uses  map[ledger.Key]use // of permits, and of tokens by tasks on their way
	// isKnown: the permits and tokens in use were read. Until then the gates are closed.
	isKnown bool

	isReading bool
	moved     map[ledger.Key]use // while isReading: the tasks changed by events
	begun     []Start            // while isReading: the starts of events
	wantsRead bool
}

// gate is the use of a limit's permits and tokens by the tasks with one value.
type gate struct {
	limit    *limit
	value    string
	inUse    int         // permits, by tasks that hold one or are on their way
	reserved int         // tokens, by tasks on their way
	used     []time.Time // when tokens were used, in order; reusable ones are removed
	// returned is the number of tasks that workers have given back, and that have no start in the ledger. Their starts
	// may have been refused, because transactions that are still open hold permits. So as many permits are not used
	// until Retry.
	returned int
	parked   map[ledger.Kind]*parkedHeap // tasks that wait for this gate alone
	// heavy is the kind that last had too few tokens for its weight. While it has its turn, kinds of less weight leave
	// it the tokens that are free.
	heavy *queue
}

// use is a task's use of a permit. It counts once, even if the task that is offered still holds the permit of an
// attempt whose worker is gone.
type use struct {
	version ledger.Version // of the last event that is known
	value   string
	isHeld  bool // by an attempt that has started
	isOpen  bool // isHeld, but the start is not recorded: another attempt cannot take it over
	isOnWay bool // the task is assigned to a session
	// isEnding: the worker no longer holds the task, so the attempt has ended, or will be repeated. The next task may
	// have the permit before the feed delivers the end.
	isEnding bool
}

// counts reports whether the permit is in use.
func (u use) counts() bool { return u.isHeld && !u.isEnding || u.isOnWay }

// Permit is a permit in use, as read from the ledger.
type Permit struct {
	Key     ledger.Key
	Version ledger.Version // of the start, or of the event before
	Value   string
	// IsOpen: the start is not recorded yet.
	IsOpen bool
}

// Start is a use of tokens, by the database's clock.
type Start struct {
	Value  string
	At     time.Time
	Tokens int
}

// InUse are the permits and tokens of a limit that are in use, as read from the ledger.
type InUse struct {
	Permits []Permit
	Starts  []Start
	At      time.Time // the database's time when the statement began
}

// parkedHeap is ordered by priority and position.
type parkedHeap struct{ readyHeap }

func (h parkedHeap) Less(i, j int) bool {
	a, b := h.readyHeap[i], h.readyHeap[j]
	if x, y := a.Priority.Level(), b.Priority.Level(); x != y {
		return x < y
	}
	return a.Position < b.Position
}

// gateOf returns the gate of a value.
func (l *limit) gateOf(value string) *gate {
	g := l.gates[value]
	if g == nil {
		g = &gate{limit: l, value: value, parked: map[ledger.Kind]*parkedHeap{}}
		l.gates[value] = g
	}
	return g
}

// tidy forgets a gate without content.
func (g *gate) tidy() {
	isEmpty := g.inUse == 0 && g.reserved == 0 && len(g.used) == 0 && g.returned == 0 && len(g.parked) == 0
	if g.limit.Per != "" && isEmpty {
		delete(g.limit.gates, g.value)
	}
}

// room returns how many further tasks of a kind may be offered. To a task that holds a permit, only the rate applies.
func (g *gate) room(kind ledger.Kind, isHolder bool, now time.Time) int {
	l := g.limit
	if !l.isKnown {
		return 0
	}
	room := int(^uint(0) >> 1)
	if l.MaxRunning >= 0 && !isHolder {
		room = l.MaxRunning - g.inUse - g.returned
	}
	if l.Burst > 0 {
		g.expire(now)
		room = min(room, (l.Burst-len(g.used)-g.reserved-g.returned)/l.Kinds[kind])
	}
	return max(0, room)
}

// expire removes the uses of tokens that can be used again.
func (g *gate) expire(now time.Time) {
	n := 0
	for n < len(g.used) && !g.used[n].Add(g.limit.Window).After(now) {
		n++
	}
	g.used = g.used[n:]
}

// opensAt returns when a kind's next start is allowed if no token is given back. It reports false if an event must
// come first.
func (g *gate) opensAt(kind ledger.Kind) (time.Time, bool) {
	free := g.limit.Burst - len(g.used) - g.reserved - g.returned
	missing := g.limit.Kinds[kind] - free
	if g.limit.Burst == 0 || missing > len(g.used) || missing < 1 {
		return time.Time{}, false
	}
	return g.used[missing-1].Add(g.limit.Window), true
}

// noteStart records that a task has used tokens.
func (g *gate) noteStart(at time.Time, tokens int) {
	for range tokens {
		i, _ := slices.BinarySearchFunc(g.used, at, func(a, b time.Time) int { return a.Compare(b) })
		g.used = slices.Insert(g.used, i, at)
	}
}

// set records a task's use of a permit.
func (l *limit) set(k ledger.Key, u use) {
	before := l.uses[k]
	l.count(k, before, -1)
	l.count(k, u, +1)
	if u.isHeld || u.isOnWay {
		l.uses[k] = u
	} else {
		delete(l.uses, k)
	}
}

// count adds a task's use by times to the gate of its value.
func (l *limit) count(k ledger.Key, u use, by int) {
	if !u.counts() {
		return
	}
	g := l.gateOf(u.value)
	g.inUse += by
	if u.isOnWay && !u.isHeld {
		g.reserved += by * l.Kinds[k.Kind]
	}
	g.tidy()
}

// apply takes an event of one of the kinds. isDropped: its worker has reported that it no longer holds the task.
func (l *limit) apply(e *Event, isDropped bool) {
	value, applies := l.valueOf(&e.Task)
	if !applies {
		return
	}
	u := l.uses[e.Key]
	u.version, u.value, u.isHeld, u.isEnding = e.Version, value, e.Change == Begun, isDropped
	u.isOpen = false
	if e.IsStart && l.Burst > 0 {
		l.gateOf(value).noteStart(e.RecordedAt, l.Kinds[e.Key.Kind])
		if l.isReading {
			l.begun = append(l.begun, Start{Value: value, At: e.RecordedAt, Tokens: l.Kinds[e.Key.Kind]})
		}
	}
	l.set(e.Key, u)
	if l.isReading {
		l.moved[e.Key] = u
	}
}

// Limit sets the limits of starts.
func (d *Dispatcher) Limit(limits []Limit) {
	current := make(map[string]*Limit, len(limits))
	for i := range limits {
		current[limits[i].Name] = &limits[i]
	}
	for name, l := range d.limits {
		if c := current[name]; c == nil || !c.isLike(&l.Limit) {
			d.removeLimit(l)
		}
	}
	for name, c := range current {
		l := d.limits[name]
		switch {
		case l == nil:
			d.addLimit(*c)
		case !l.isEqual(c):
			l.Limit, l.wantsRead = *c, true
			d.reopenAll(l)
		}
	}
}

func (d *Dispatcher) addLimit(c Limit) {
	if d.limits == nil {
		d.limits, d.limitsOf = map[string]*limit{}, map[ledger.Kind][]*limit{}
	}
	l := &limit{Limit: c, gates: map[string]*gate{}, uses: map[ledger.Key]use{}, wantsRead: true}
	d.limits[c.Name] = l
	for kind := range c.Kinds {
		d.limitsOf[kind] = append(d.limitsOf[kind], l)
		slices.SortFunc(d.limitsOf[kind], func(a, b *limit) int { return cmp.Compare(a.Name, b.Name) })
	}
	for k, t := range d.tasks {
		if _, isOfKind := c.Kinds[k.Kind]; isOfKind && t.place == assigned {
			if value, applies := l.valueOf(&t.Task); applies {
				l.set(k, use{value: value, isOnWay: true})
			}
		}
	}
}

func (d *Dispatcher) removeLimit(l *limit) {
	delete(d.limits, l.Name)
	for kind := range l.Kinds {
		d.limitsOf[kind] = slices.DeleteFunc(d.limitsOf[kind], func(other *limit) bool { return other == l })
		if len(d.limitsOf[kind]) == 0 {
			delete(d.limitsOf, kind)
		}
	}
	for _, g := range l.gates {
		delete(d.waiting, g)
		for kind := range g.parked {
			d.unpark(g, kind, g.parked[kind].Len())
		}
	}
	for k := range l.uses {
		d.setHolder(d.tasks[k])
	}
	d.reopenAll(l)
}

// Tick records the database's time, and opens the gates whose tokens can be used again.
func (d *Dispatcher) Tick(now time.Time) {
	d.now = now
	if d.opensAt.IsZero() || now.Before(d.opensAt) {
		return
	}
	d.opensAt = time.Time{}
	for g, waiting := range d.waiting {
		for kind := range waiting {
			if g.room(kind, false, now) > 0 {
				delete(d.waiting, g)
				d.reopen(g)
				break
			}
		}
		d.noteOpening(g)
	}
}

// OpensAt returns the database's time at which the next gate may open for which tasks wait; zero: none opens without an
// event.
func (d *Dispatcher) OpensAt() time.Time { return d.opensAt }

// wait records that tasks of a kind wait for a gate.
func (d *Dispatcher) wait(g *gate, kind ledger.Kind) {
	if g.limit.Burst == 0 {
		return
	}
	if d.waiting == nil {
		d.waiting = map[*gate]map[ledger.Kind]bool{}
	}
	if d.waiting[g] == nil {
		d.waiting[g] = map[ledger.Kind]bool{}
	}
	d.waiting[g][kind] = true
	d.noteOpening(g)
}

// noteOpening notes when a gate opens for which tasks wait.
func (d *Dispatcher) noteOpening(g *gate) {
	for kind := range d.waiting[g] {
		if at, isKnown := g.opensAt(kind); isKnown && (d.opensAt.IsZero() || at.Before(d.opensAt)) {
			d.opensAt = at
		}
	}
}

// Retry lets tasks with limits try again whose starts may have been refused: half of them. The caller calls it at
// intervals, because no event shows that a transaction was rolled back.
func (d *Dispatcher) Retry() {
	for _, l := range d.limits {
		for _, g := range l.gates {
			if g.returned > 0 {
				g.returned /= 2
				d.reopen(g)
			}
		}
	}
}

// noteReturn notes in the gates of a task that it was given back without a start.
func (d *Dispatcher) noteReturn(t *task) {
	for _, l := range d.limitsOf[t.Key.Kind] {
		value, applies := l.valueOf(&t.Task)
		if !applies || !t.isReturned || l.uses[t.Key].isHeld {
			continue
		}
		most := l.MaxRunning
		if l.Burst > 0 {
			most = max(most, l.Burst)
			l.wantsRead = true // the database's clock may have been set
		}
		g := l.gateOf(value)
		g.returned = min(most, g.returned+1)
	}
	t.isReturned = false
}

// reopen considers the tasks that wait for a gate, which may have opened.
func (d *Dispatcher) reopen(g *gate) {
	if g.limit.Per == "" {
		for kind := range g.limit.Kinds {
			if q := d.queues[kind]; q != nil && q.hasTasks() {
				d.expect(q)
			}
		}
		return
	}
	for kind := range g.parked {
		d.unpark(g, kind, g.room(kind, false, d.now))
	}
	g.tidy()
}

// reopenAll considers the tasks of all kinds of a limit.
func (d *Dispatcher) reopenAll(l *limit) {
	for _, g := range l.gates {
		d.reopen(g)
	}
	for kind := range l.Kinds {
		if q := d.queues[kind]; q != nil && q.hasTasks() {
			d.expect(q)
		}
	}
}

// park takes a ready task out of its queue until a gate opens, so that tasks behind it can be offered.
func (d *Dispatcher) park(q *queue, t *task, g *gate) {
	d.remove(q, t)
	t.place, t.gate = parked, g
	h := g.parked[t.Key.Kind]
	if h == nil {
		h = &parkedHeap{}
		g.parked[t.Key.Kind] = h
	}
	heap.Push(h, t)
	q.parked++
}

// unpark makes at most n tasks of a kind ready that wait for a gate.
func (d *Dispatcher) unpark(g *gate, kind ledger.Kind, n int) {
	for ; n > 0 && g.parked[kind] != nil; n-- {
		t := g.parked[kind].readyHeap[0]
		d.takeFromGate(t)
		d.enqueue(t)
		if q := d.queues[kind]; q != nil {
			d.note(q)
		}
	}
}

// takeFromGate takes a parked task from its gate.
func (d *Dispatcher) takeFromGate(t *task) {
	g := t.gate
	h := g.parked[t.Key.Kind]
	if heap.Remove(h, t.index); h.Len() == 0 {
		delete(g.parked, t.Key.Kind)
	}
	t.place, t.gate = outside, nil
	if q := d.queues[t.Key.Kind]; q != nil {
		q.parked--
	}
}

// unparkAll makes all parked tasks of a kind ready.
func (d *Dispatcher) unparkAll(kind ledger.Kind) {
	for _, l := range d.limitsOf[kind] {
		for _, g := range l.gates {
			if h := g.parked[kind]; h != nil {
				d.unpark(g, kind, h.Len())
			}
		}
	}
}

// RereadPermits requests a read of the permits and tokens of all limits.
func (d *Dispatcher) RereadPermits() {
	for _, l := range d.limits {
		l.wantsRead = true
	}
}

// PermitReads returns, each once, the limits whose permits and tokens in use must be read. The caller reads them by a
// statement that begins after the call, and passes them to [Dispatcher.TakePermits].
func (d *Dispatcher) PermitReads() (names []string) {
	for name, l := range d.limits {
		if l.wantsRead && !l.isReading {
			l.wantsRead, l.isReading, l.moved, l.begun = false, true, map[ledger.Key]use{}, nil
			names = append(names, name)
		}
	}
	return names
}

// TakePermits takes the permits and tokens of a limit that are in use, or the failure of their read.
func (d *Dispatcher) TakePermits(name string, read InUse, failed bool) {
	l := d.limits[name]
	if l == nil || !l.isReading {
		return // the limit was removed meanwhile
	}
	moved, begun := l.moved, l.begun
	l.isReading, l.moved, l.begun = false, nil, nil
	if failed {
		l.wantsRead = true
		return
	}
	held := make(map[ledger.Key]use, len(read.Permits))
	for _, p := range read.Permits {
		if moved[p.Key].version <= p.Version {
			held[p.Key] = use{version: p.Version, value: p.Value, isOpen: p.IsOpen}
		}
	}
	for k, u := range moved {
		if _, isRead := held[k]; u.isHeld && !isRead {
			held[k] = u
		}
	}
	for k, u := range l.uses {
		if _, isHeld := held[k]; u.isHeld && !isHeld {
			u.isHeld = false
			l.set(k, u)
			d.setHolder(d.tasks[k])
		}
	}
	for k, of := range held {
		u := l.uses[k]
		u.version, u.value, u.isHeld, u.isOpen = max(u.version, of.version), of.value, true, of.isOpen
		l.set(k, u)
		d.setHolder(d.tasks[k])
	}
	for _, g := range l.gates {
		g.used = nil
	}
	for _, s := range read.Starts {
		l.gateOf(s.Value).noteStart(s.At, s.Tokens)
	}
	for _, s := range begun {
		if s.At.After(read.At) {
			l.gateOf(s.Value).noteStart(s.At, s.Tokens)
		}
	}
	l.isKnown = true
	d.reopenAll(l)
}

// isHolder reports whether a task holds the permits of all its limits.
func (d *Dispatcher) isHolder(t *Task) (is bool) {
	for _, l := range d.limitsOf[t.Key.Kind] {
		if _, applies := l.valueOf(t); !applies || l.MaxRunning < 0 {
			continue
		}
		u := l.uses[t.Key]
		if is = u.isHeld && !u.isOpen; !is {
			return false
		}
	}
	return is
}

// setHolder records whether a task holds its permits. A ready task that does goes first, even while the gates are
// closed.
func (d *Dispatcher) setHolder(t *task) {
	if t == nil {
		return
	}
	is := d.isHolder(&t.Task)
	if t.isHolder == is {
		return
	}
	switch t.place {
	case ready:
		q := d.queues[t.Key.Kind]
		d.remove(q, t)
		t.isHolder = is
		d.push(q, t)
	case parked:
		d.takeFromGate(t)
		d.enqueue(t)
	default:
		t.isHolder = is
	}
}

// pass applies an event to the gates of its task.
func (d *Dispatcher) pass(e *Event) {
	for _, l := range d.limitsOf[e.Key.Kind] {
		value, applies := l.valueOf(&e.Task)
		if !applies {
			continue
		}
		_, isKnown := l.uses[e.Key]
		g := l.gateOf(value)
		t := d.tasks[e.Key]
		isDropped := t != nil && t.isReturned && t.place == doubtful
		if !isKnown && e.Version > 1 && !isDropped {
			g.returned = max(0, g.returned-1) // a transaction that held a permit may have ended
		}
		l.apply(e, isDropped)
		if e.Change != Begun {
			d.reopen(g)
		}
		d.noteOpening(g)
	}
}

// noteOnWay records in the gates of a task whether the task is assigned.
func (d *Dispatcher) noteOnWay(t *task, is bool) {
	for _, l := range d.limitsOf[t.Key.Kind] {
		value, applies := l.valueOf(&t.Task)
		if !applies {
			continue
		}
		u := l.uses[t.Key]
		u.value, u.isOnWay = value, is
		l.set(t.Key, u)
		if !is {
			d.reopen(l.gateOf(value))
		}
	}
}

// noteEnding records whether the permits that a task holds are about to be free, because its worker no longer holds
// it.
func (d *Dispatcher) noteEnding(t *task, is bool) {
	for _, l := range d.limitsOf[t.Key.Kind] {
		if u := l.uses[t.Key]; u.isHeld && u.isEnding != is {
			u.isEnding = is
			l.set(t.Key, u)
		}
	}
}

// room returns how many of the ready tasks of a queue may be offered now, without those that hold a permit. Limits per
// value do not count: tasks are parked at their gates.
func (d *Dispatcher) room(q *queue) int {
	room := q.size
	for _, l := range d.limitsOf[q.kind] {
		if l.Per == "" {
			room = min(room, l.gateOf("").room(q.kind, false, d.now))
		}
	}
	return room
}

// closedGate returns the first closed gate of a task, or nil.
func (d *Dispatcher) closedGate(t *task) *gate {
	for _, l := range d.limitsOf[t.Key.Kind] {
		value, applies := l.valueOf(&t.Task)
		if !applies {
			continue
		}
		if g := l.gateOf(value); g.room(t.Key.Kind, t.isHolder, d.now) == 0 || d.yields(t, g) {
			return g
		}
	}
	return nil
}

// yields reports whether a task leaves free tokens to a heavier kind of the limit: one that has its turn, and lacks
// nothing but tokens of this limit.
func (d *Dispatcher) yields(t *task, g *gate) bool {
	h, q := g.heavy, d.queues[t.Key.Kind]
	if h == nil || g.limit.Per != "" || t.isHolder || h.served > q.served || !h.hasTasks() || d.paused[h.kind] ||
		g.limit.Kinds[h.kind] <= g.limit.Kinds[q.kind] {
		return false
	}
	for _, l := range d.limitsOf[h.kind] {
		if l != g.limit && (l.Per != "" || l.gateOf("").room(h.kind, false, d.now) == 0) ||
			l.MaxRunning >= 0 && l.MaxRunning <= g.inUse && l == g.limit {
			return false
		}
	}
	return slices.ContainsFunc(h.sessions, func(s *session) bool { return s.room(h.kind) > 0 && h.next(s) != nil })
}

// admit returns the task that a session gets next, if its gates are open. Tasks that wait for the gate of their value
// are parked.
func (d *Dispatcher) admit(q *queue, s *session) *task {
	for {
		t := q.next(s)
		if t == nil {
			return nil
		}
		g := d.closedGate(t)
		if g == nil {
			return t
		}
		if g.limit.Burst > 0 && g.room(q.kind, t.isHolder, d.now) == 0 && g.limit.Kinds[q.kind] > 1 {
			g.heavy = q
		}
		d.wait(g, q.kind)
		if g.limit.Per == "" || t.owner != nil || t.isHolder {
			return nil
		}
		d.park(q, t, g)
	}
}
