package dispatch

import (
	"cmp"
	"maps"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

// Match offers ready tasks to the workers with room. Workers of a kind get equal shares of its tasks, up to their room.
// If there are fewer tasks than workers, the workers with the fewest tasks get one each. Their room is ignored: quick
// handlers increase it, but so do handlers that have begun to hang.
//
// Afterwards no session has room for a ready task. So Match considers only the kinds that have got a task since the
// last call, and the sessions that have got room.
func (d *Dispatcher) Match() {
	if !d.isActive {
		return
	}
	for _, s := range slices.SortedFunc(maps.Keys(d.roomier), bySession) {
		d.addRoomier(s)
	}
	clear(d.roomier)
	due := slices.SortedFunc(maps.Values(d.due), func(a, b *queue) int { // kinds with one limit take turns
		return cmp.Or(cmp.Compare(a.served, b.served), cmp.Compare(a.kind, b.kind))
	})
	for _, q := range due {
		d.matchKind(q)
	}
	clear(d.due)
}

func bySession(a, b *session) int { return cmp.Compare(a.Session, b.Session) }

// addRoomier adds a session to the kinds with ready tasks for which it has room.
func (d *Dispatcher) addRoomier(s *session) {
	add := func(q *queue) {
		if s.room(q.kind) > 0 {
			q.roomier = append(q.roomier, s)
			d.due[q.kind] = q
		}
	}
	if len(d.busy) < len(s.Kinds) {
		for kind, q := range d.busy {
			if _, isOfKind := s.Kinds[kind]; isOfKind {
				add(q)
			}
		}
		return
	}
	for kind := range s.Kinds {
		if q := d.busy[kind]; q != nil {
			add(q)
		}
	}
}

// expect records that any session of a kind may take one of its tasks.
func (d *Dispatcher) expect(q *queue) {
	q.hasNews = true
	d.due[q.kind] = q
}

// matchKind offers the tasks of a kind that has got a task, or sessions with room.
func (d *Dispatcher) matchKind(q *queue) {
	if !d.paused[q.kind] {
		if q.hasNews {
			d.share(q, q.idle(d.room(q)))
		}
		d.share(q, q.candidates())
	}
	q.hasNews, q.roomier = false, nil
	if !q.hasTasks() {
		delete(d.busy, q.kind)
	}
}

// taker is a session with room for tasks of a kind.
type taker struct {
	*session

	room int
}

// idle returns, in turn, a session that holds nothing for each of size ready tasks, or none. It looks at a few
// sessions, so that a task costs little if most of many workers are idle.
func (q *queue) idle(size int) (free []taker) {
	n := len(q.sessions)
	for i := range min(n, 2*size+16) {
		if len(free) == size {
			return free
		}
		if s := q.sessions[(i+q.turn)%n]; s.holds == 0 {
			if room := s.room(q.kind); room > 0 {
				free = append(free, taker{s, room})
			}
		}
	}
	if len(free) < size {
		return nil
	}
	return free
}

// candidates returns the sessions that may take a ready task, in turn, so that equal workers get equally many tasks
// over time.
func (q *queue) candidates() (free []taker) {
	all := q.roomier
	switch {
	case !q.hasTasks():
		return nil
	case q.hasNews:
		all = q.sessions
	}
	for i := range all {
		s := all[(i+q.turn)%len(all)]
		if room := s.room(q.kind); room > 0 {
			free = append(free, taker{s, room})
		}
	}
	return free
}

// share divides ready tasks among the sessions that may take them.
func (d *Dispatcher) share(q *queue, free []taker) {
	size := d.room(q)
	isScarce := size < len(free)
	slices.SortStableFunc(free, func(a, b taker) int {
		if isScarce {
			return cmp.Compare(b.holds, a.holds)
		}
		return cmp.Compare(a.room, b.room)
	})
	for i, s := range free {
		d.give(q, s.session, d.room(q)/(len(free)-i))
	}
	for _, s := range slices.Backward(free) { // tasks that the others do not take or may not have
		d.give(q, s.session, q.size+len(q.ownedBy(s.session)))
	}
}

// give offers at most n tasks of a kind to a session with room.
func (d *Dispatcher) give(q *queue, s *session, n int) {
	if n == 0 {
		return
	}
	for n = min(n, s.room(q.kind)); n > 0; {
		taken := d.offer(q, s, min(n, maxListed))
		if taken == 0 {
			break
		}
		n -= taken
	}
}

// offer offers at most n tasks of a kind to a session, and returns their number.
func (d *Dispatcher) offer(q *queue, s *session, n int) int {
	o := Offer{Session: s.Session, Incarnation: d.incarnation, Epoch: d.epoch, Echo: s.echo, Number: s.sent + 1,
		Adopted: s.adopted}
	for size := 0; len(o.Tasks) < n && size < maxOfferBytes; {
		t := d.admit(q, s)
		if t == nil {
			break
		}
		q.serve(s, t, d.weights)
		d.remove(q, t)
		size += len(t.Content) + len(t.Key.BizID)
		s.sent++
		s.assign(t, s.sent)
		d.noteOnWay(t, true)
		q.turn = (q.turn + 1) % len(q.sessions)
		o.Tasks = append(o.Tasks, t.Task)
		t.Content = nil // the next worker that gets the task reads it
	}
	if len(o.Tasks) == 0 {
		return 0
	}
	if len(d.limitsOf[q.kind]) > 0 {
		d.served++
		q.served = d.served
	}
	s.given[q.kind] += int64(len(o.Tasks))
	s.unconfirmed[q.kind] = s.sent
	o.Given = make(map[ledger.Kind]int64, len(s.unconfirmed))
	for kind := range s.unconfirmed { // earlier offers may be lost
		o.Given[kind] = s.given[kind]
	}
	d.offers = append(d.offers, o)
	return len(o.Tasks)
}
