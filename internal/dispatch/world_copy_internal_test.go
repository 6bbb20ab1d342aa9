package dispatch

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

func (h *hand) clone() *hand {
	n := *h.Worker
	n.wanted, n.asked, n.got = maps.Clone(n.wanted), maps.Clone(n.asked), maps.Clone(n.got)
	n.held = make(map[ledger.Key]*Holding, len(h.held))
	for k, v := range h.held {
		one := *v
		n.held[k] = &one
	}
	return &hand{&n, slices.Clone(h.phases), h.last}
}

func (d *desk) clone() *desk {
	if d == nil {
		return nil
	}
	n, c := *d, *d.Dispatcher
	n.Dispatcher = &c
	tasks := map[*task]*task{}
	sessions := map[*session]*session{}
	c.workers, c.sessions = map[string]*session{}, map[string]*session{}
	for worker, s := range d.workers {
		one := *s
		one.asked, one.given, one.unconfirmed = maps.Clone(s.asked), maps.Clone(s.given), maps.Clone(s.unconfirmed)
		sessions[s] = &one
		c.workers[worker], c.sessions[s.Session] = &one, &one
	}
	of := func(t *task) *task {
		if t == nil {
			return nil
		}
		if tasks[t] == nil {
			one := *t
			one.session, one.owner = sessions[t.session], sessions[t.owner]
			tasks[t] = &one
		}
		return tasks[t]
	}
	c.tasks = make(map[ledger.Key]*task, len(d.tasks))
	for k, t := range d.tasks {
		c.tasks[k] = of(t)
	}
	c.doubts = nil
	for _, t := range d.doubts {
		c.doubts = append(c.doubts, of(t))
	}
	for s, one := range sessions {
		one.numbers = nil
		for _, x := range s.numbers {
			one.numbers = append(one.numbers, number{x.n, of(x.task)})
		}
	}
	c.due, c.roomier = map[ledger.Kind]*queue{}, map[*session]bool{} // the world matches one task at a time
	c.queues, c.busy, c.spilled = map[ledger.Kind]*queue{}, map[ledger.Kind]*queue{}, map[ledger.Kind]*queue{}
	for kind, q := range d.queues {
		one := *q
		for i := range q.levels {
			q.levels[i].copyTo(&one.levels[i], of)
		}
		one.moved = maps.Clone(q.moved)
		one.turns = maps.Clone(q.turns)
		one.sessions = nil
		for _, s := range q.sessions {
			one.sessions = append(one.sessions, sessions[s])
		}
		one.owned = map[*session]*readyHeap{}
		for s, h := range q.owned {
			copied := &readyHeap{}
			for _, t := range *h {
				*copied = append(*copied, of(t))
			}
			one.owned[sessions[s]] = copied
		}
		c.queues[kind] = &one
		if d.busy[kind] != nil {
			c.busy[kind] = &one
		}
		if d.spilled[kind] != nil {
			c.spilled[kind] = &one
		}
	}
	return &n
}

// copyTo copies a level, whose tasks have copies.
func (l *level) copyTo(n *level, of func(*task) *task) {
	*n = *l
	n.plain = l.plain.clone(of)
	if l.partitions == nil {
		return
	}
	p := *l.partitions
	n.partitions = &p
	lanes := map[*lane]*lane{&l.plain: &n.plain}
	p.lanes = map[string]*lane{}
	for name, one := range l.lanes {
		copied := one.clone(of)
		p.lanes[name], lanes[one] = &copied, &copied
	}
	copies := func(all []*lane) (copied []*lane) {
		for _, one := range all {
			copied = append(copied, lanes[one])
		}
		return copied
	}
	p.idle, p.due, p.orders = copies(l.idle), copies(l.due), nil
	turns := map[*turn]*turn{}
	for _, o := range l.orders {
		one := *o
		p.orders = append(p.orders, &one)
		for from, to := range lanes {
			for _, t := range from.turns {
				if t.of == o {
					turns[t] = &turn{&one, to, t.virtual, t.index}
					to.turns = append(to.turns, turns[t])
				}
			}
		}
		one.turns = nil
		for _, t := range o.turns {
			one.turns = append(one.turns, turns[t])
		}
	}
}

func (l *lane) clone(of func(*task) *task) lane {
	n := *l
	n.ready, n.turns, n.late = slices.Clone(l.ready), nil, slices.Clone(l.late)
	for i, h := range l.ready {
		n.ready[i] = nil
		for _, t := range h {
			n.ready[i] = append(n.ready[i], of(t))
		}
	}
	return n
}

func (w *world) clone() *world {
	n := *w
	n.log = slices.Clip(w.log)
	n.isCommitted, n.isDone = slices.Clone(w.isCommitted), slices.Clone(w.isDone)
	n.begins, n.isExcused = slices.Clone(w.begins), slices.Clone(w.isExcused)
	n.dispatchers = [2]*desk{w.dispatchers[0].clone(), w.dispatchers[1].clone()}
	n.workers = nil
	for _, h := range w.workers {
		n.workers = append(n.workers, h.clone())
	}
	n.messages = slices.Clone(w.messages)
	return &n
}

// key encodes all that decides what may happen: two worlds with one key have one future.
func (w *world) key() string {
	k := &keyWriter{}
	for _, e := range w.log {
		k.ints(e.task, int(e.version))
	}
	k.bools(w.isCommitted...)
	k.bools(w.isExcused...)
	k.ints(w.begins...)
	k.ints(w.losses, w.copies, w.beats, w.giveBacks, w.hints, w.silences, w.lapses)
	k.bools(w.isFenced)
	for _, d := range w.dispatchers {
		k.desk(d)
	}
	for _, h := range w.workers {
		k.hand(h)
	}
	k.messages(w.messages)
	return string(k.b)
}

// keyWriter encodes a world.
type keyWriter struct{ b []byte }

func (k *keyWriter) ints(all ...int) {
	for _, n := range all {
		k.b = binary.AppendVarint(k.b, int64(n))
	}
}
func (k *keyWriter) bools(all ...bool) {
	for _, is := range all {
		if is {
			k.b = append(k.b, 1)
		} else {
			k.b = append(k.b, 0)
		}
	}
}
func (k *keyWriter) text(s string) { k.ints(len(s)); k.b = append(k.b, s...) }
func (k *keyWriter) sums(m map[ledger.Kind]int64) {
	k.ints(int(m[testKind]))
}

func (k *keyWriter) desk(d *desk) {
	k.bools(d != nil)
	if d == nil {
		return
	}
	k.bools(d.isDead, d.isActive, d.ticket != 0, d.isReading, d.hasRows, d.isVerifying)
	k.ints(d.fed, d.until, int(d.againThrough), len(d.hinted), len(d.unverified))
	for i, r := range d.reads {
		k.text(r.Partition)
		if d.hasRows {
			k.bools(d.isEnd[i])
			k.ints(len(d.rows[i]))
			for _, t := range d.rows[i] {
				k.text(string(t.Key.BizID))
			}
		}
	}
	k.ints(len(d.searches), len(d.found.Listed))
	for _, t := range d.hinted {
		k.text(string(t.Key.BizID))
		k.bools(d.hintedAt == d.applied)
	}
	for _, u := range d.unverified {
		k.text(string(u.BizID))
	}
	for _, s := range d.ordered() {
		k.bools(s.hasReported, s.isSilent)
		k.ints(int(s.adopted), int(s.sent), int(s.received), s.holds)
		k.sums(s.asked)
		k.sums(s.given)
		k.sums(s.unconfirmed)
	}
	for _, t := range d.sorted() {
		k.text(string(t.Key.BizID))
		k.ints(int(t.place), int(t.Version), int(t.number))
		isOpen := (t.place == doubtful || t.place == gone) && t.ticket == d.opened
		k.bools(t.isUnverified, t.isBeingRead, t.IsAgain, isOpen)
		if t.session != nil {
			k.text(t.session.Session)
		}
	}
	k.ints(int(d.sent))
	for _, kind := range d.queues {
		k.bools(kind.isSpilled())
		k.ints(len(kind.moved))
		for _, key := range slices.SortedFunc(maps.Keys(kind.moved), ledger.Key.Compare) {
			k.text(string(key.BizID))
			k.ints(int(kind.moved[key]))
		}
		k.level(kind.normal())
	}
}

func (k *keyWriter) level(l *level) {
	k.bools(l.search.isHidden, l.search.isReading, l.search.isStale, l.search.isMissed)
	k.lane(&l.plain)
	if l.partitions == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.lanes)) {
		k.text(name)
		k.lane(l.lanes[name])
	}
}

func (k *keyWriter) lane(l *lane) {
	k.bools(l.isSpilled, l.isReading, l.isDue)
	k.ints(int(l.place), int(l.skipped), len(l.late))
	for _, t := range l.late {
		k.text(string(t.Key.BizID))
		k.ints(int(t.Version))
	}
	for _, t := range l.turns {
		k.ints(int(t.virtual - t.of.now))
	}
}

func (k *keyWriter) hand(h *hand) {
	k.ints(int(h.epoch), int(h.received), int(h.adopted))
	k.sums(h.wanted)
	k.sums(h.asked)
	k.sums(h.got)
	for _, p := range h.phases {
		k.ints(int(p))
	}
	for _, one := range h.holdings() {
		k.text(string(one.Key.BizID))
		k.ints(int(one.Number))
	}
	k.text(h.last)
}

// messages encodes the messages of each channel in their order, and stray messages in any order.
func (k *keyWriter) messages(all []message) {
	ordered := make([]*message, len(all))
	for i := range all {
		ordered[i] = &all[i]
	}
	slices.SortStableFunc(ordered, func(a, b *message) int {
		switch {
		case a.isStray != b.isStray && a.isStray:
			return 1
		case a.isStray != b.isStray:
			return -1
		case a.isStray:
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Compare(a.channel(), b.channel())
	})
	for _, m := range ordered {
		k.bools(m.isStray)
		k.text(m.key)
	}
}

// sorted returns the tasks in memory by key.
func (d *Dispatcher) sorted() []*task {
	return slices.SortedFunc(maps.Values(d.tasks), func(a, b *task) int { return a.Key.Compare(b.Key) })
}
