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
func (d *Dispatcher) Match() {
	if !d.isActive {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(d.busy)) {
		q := d.busy[kind]
		d.matchKind(q)
		if q.size == 0 {
			delete(d.busy, kind)
		}
	}
}

func (d *Dispatcher) matchKind(q *queue) {
	if q.size == 0 || d.paused[q.kind] {
		return
	}
	var free []*session
	n := len(q.sessions)
	for i := range n { // in turn, so that equal workers get equally many tasks over time
		if s := q.sessions[(i+q.turn)%n]; s.room(q.kind) > 0 {
			free = append(free, s)
		}
	}
	slices.SortStableFunc(free, func(a, b *session) int {
		if q.size < len(free) {
			return cmp.Compare(b.holds, a.holds)
		}
		return cmp.Compare(a.room(q.kind), b.room(q.kind))
	})
	for i, s := range free {
		d.give(q, s, q.size/(len(free)-i))
	}
	for _, s := range slices.Backward(free) { // the remaining tasks
		d.give(q, s, q.size)
	}
}

// give offers at most n tasks of a kind to a session with room.
func (d *Dispatcher) give(q *queue, s *session, n int) {
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
		t := q.first(s)
		if t == nil {
			break
		}
		q.remove(t)
		d.size--
		size += len(t.Content) + len(t.Key.BizID)
		s.sent++
		s.assign(t, s.sent)
		q.turn = (q.turn + 1) % len(q.sessions)
		o.Tasks = append(o.Tasks, t.Task)
		t.Content = nil // the next worker that gets the task reads it
	}
	if len(o.Tasks) == 0 {
		return 0
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
