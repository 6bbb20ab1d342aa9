package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Dispatcher gives ready tasks to workers, in one epoch.
type Dispatcher struct {
	incarnation string
	epoch       int64
	limit       int // of tasks of a kind and priority that are ready in memory, see most
	mutant      mutant

	isActive bool
	// Tasks up to this position may have begun in a worker that did not answer before the dispatcher was active.
	againThrough ledger.Position
	opened       int64 // the number of windows that were opened
	applied      int64 // the number of calls of Apply

	paused   map[ledger.Kind]bool
	sent     int64               // the highest number of the sessions that have left
	workers  map[string]*session // by worker: those with a live lease
	sessions map[string]*session // by session
	queues   map[ledger.Kind]*queue
	// Of many kinds few need work. busy contains the queues with ready tasks, spilled all spilled queues, and due those
	// that Match considers: they have got a task, or one of their sessions has got room.
	busy, spilled, due map[ledger.Kind]*queue
	roomier            map[*session]bool // the sessions that may have got room since Match

	tasks   map[ledger.Key]*task
	size    int                             // of all queues, without owned tasks
	running map[string]map[ledger.Key]*task // tasks in this place, by the worker that has begun them
	doubts  []*task                         // doubtful or gone, now or earlier
	offers  []Offer                         // to be sent

	recalls map[*session]bool // the sessions with recalls to be sent

	weights map[string]float64 // by partition; 1 without an entry

	// Of limits of starts; nil: there has been none.
	limits   map[string]*limit
	limitsOf map[ledger.Kind][]*limit       // ordered by name
	waiting  map[*gate]map[ledger.Kind]bool // the gates for which tasks wait, or have
	opensAt  time.Time                      // not after the next gate of a rate opens for which tasks wait; zero: none
	served   int64                          // the number of offers to kinds with limits
	now      time.Time                      // the database's
}

// New returns a dispatcher that is not active yet. At most limit tasks of a kind and priority are ready in memory, and
// at most twice as many of all. Beyond 512 kinds, and while the memory is full, a kind gets at most limit/256.
func New(incarnation string, epoch int64, limit int) *Dispatcher {
	return &Dispatcher{incarnation: incarnation, epoch: epoch, limit: limit, workers: map[string]*session{},
		sessions: map[string]*session{}, queues: map[ledger.Kind]*queue{}, busy: map[ledger.Kind]*queue{},
		spilled: map[ledger.Kind]*queue{}, due: map[ledger.Kind]*queue{}, roomier: map[*session]bool{},
		tasks: map[ledger.Key]*task{}, running: map[string]map[ledger.Key]*task{},
		recalls: map[*session]bool{}}
}

// Join records a live lease, or a change of it. A worker has one session: a new session ends the last.
func (d *Dispatcher) Join(l Lease) {
	s := d.workers[l.Worker]
	if s != nil && s.Session == l.Session {
		before := s.Kinds
		s.Lease = l
		d.roomier[s] = true
		if !maps.Equal(before, l.Kinds) {
			d.cover(s, l.Kinds, +1)
			d.cover(s, before, -1)
			d.doubtAll(d.begunBy(s, before)) // it may have lost them, or can have them now
		}
		return
	}
	joined := newSession(l, d.sent) // the session may have left, while offers are on their way
	d.cover(joined, l.Kinds, +1)
	d.Leave(l.Worker)
	d.workers[l.Worker] = joined
	if l.Session != "" {
		d.sessions[l.Session] = joined
		d.probe(joined)
	}
}

// Leave records that a worker's lease has ended. Its tasks become doubtful.
func (d *Dispatcher) Leave(worker string) {
	s := d.workers[worker]
	if s == nil {
		return
	}
	delete(d.workers, worker)
	delete(d.sessions, s.Session)
	d.sent = max(d.sent, s.sent)
	kinds := s.Kinds
	d.doubtAll(append(s.assigned(s.sent), d.begunBy(s, kinds)...))
	s.Kinds = nil
	d.cover(s, kinds, -1)
}

// begunBy returns the tasks of kinds that wait for a worker because it has begun them.
func (d *Dispatcher) begunBy(s *session, kinds map[ledger.Kind]ledger.ShardSet) []*task {
	all := slices.Collect(maps.Values(d.running[s.Worker]))
	for kind := range kinds {
		if q := d.queues[kind]; q != nil {
			all = append(all, q.ownedBy(s)...)
		}
	}
	return all
}

// holder returns the session of the live worker that has begun a task, or nil. A lease counts for its kinds only.
func (d *Dispatcher) holder(t *task) *session {
	s := d.workers[t.Actor]
	if s == nil {
		return nil
	}
	if _, isOfKind := s.Kinds[t.Key.Kind]; !isOfKind {
		return nil
	}
	return s
}

// cover counts the sessions that take kinds and shards: by is added for each. Tasks that no worker takes are not kept
// in memory, unless they may have begun without a record. They are read from the ledger when a worker takes them.
func (d *Dispatcher) cover(s *session, kinds map[ledger.Kind]ledger.ShardSet, by int) {
	if s.Session == "" {
		return
	}
	for kind, shards := range kinds {
		q := d.queue(kind)
		if q.parked > 0 {
			d.unparkAll(kind)
		}
		_, isOfKind := s.Kinds[kind]
		q.setSession(s, isOfKind)
		before := q.size
		gained, lost := q.cover(shards, by)
		d.size += q.size - before
		if gained != 0 {
			for i := range q.levels {
				d.spillAll(q, &q.levels[i])
			}
		}
		d.note(q)
		for i := range q.levels {
			for _, t := range q.levels[i].in(lost) {
				if !t.IsAgain {
					d.forget(t)
				}
			}
		}
		q.keepOrders()
		d.tidy(q)
	}
}

// tidy forgets a queue without workers and tasks. A queue without tasks needs no work.
func (d *Dispatcher) tidy(q *queue) {
	if q.hasTasks() {
		return
	}
	delete(d.busy, q.kind)
	if q.shards == 0 && q.filled() == 0 && q.parked == 0 {
		delete(d.queues, q.kind)
		delete(d.spilled, q.kind)
		delete(d.due, q.kind)
	}
}

// most returns how many tasks of a kind and priority may be ready in memory. When earlier kinds have filled it, each
// other kind has the least.
func (d *Dispatcher) most() int {
	least := max(1, d.limit/256)
	if d.size >= 2*d.limit {
		return least
	}
	return min(d.limit, max(least, 2*d.limit/max(1, len(d.queues))))
}

// Pause sets the kinds whose tasks are not offered.
func (d *Dispatcher) Pause(kinds map[ledger.Kind]bool) {
	for kind := range d.paused {
		if q := d.queues[kind]; q != nil && !kinds[kind] {
			d.expect(q)
		}
	}
	d.paused = kinds
}

// doubtAll doubts tasks, in the order of their keys.
func (d *Dispatcher) doubtAll(all []*task) {
	slices.SortFunc(all, func(a, b *task) int { return a.Key.Compare(b.Key) })
	for _, t := range all {
		d.doubt(t)
	}
}

// Check doubts the tasks that a worker has held since the last call without recording their start. The interval
// between calls must be long enough for a healthy worker to begin each task and record its start, or to give it back.
// Each call that finds such tasks halves the worker's share. Each task that the worker ends doubles it again.
func (d *Dispatcher) Check(worker string) {
	s := d.workers[worker]
	if s == nil {
		return
	}
	idle := s.unrecorded(s.checked)
	s.checked = s.sent
	for _, t := range idle {
		d.doubt(t)
	}
	if len(idle) > 0 {
		s.idle = min(s.idle+1, maxIdle)
	}
}

// Silence records that no report of a worker has arrived for a while, though its lease is alive. Its tasks become
// doubtful, unless their start is recorded: the offers may be lost. It gets no further tasks until it reports again.
func (d *Dispatcher) Silence(worker string) {
	s := d.workers[worker]
	if s == nil || s.isSilent {
		return
	}
	s.isSilent = true
	for _, t := range s.unrecorded(s.sent) {
		d.doubt(t)
	}
}

// maxIdle is how often the share of an idle worker is halved at most.
const maxIdle = 20

// Workers returns the workers that have joined.
func (d *Dispatcher) Workers() []string { return slices.Collect(maps.Keys(d.workers)) }

// Unanswered returns the workers with a session that has not answered in this epoch.
func (d *Dispatcher) Unanswered() (workers []string) {
	for worker, s := range d.workers {
		if s.Session != "" && !s.hasAnswered() {
			workers = append(workers, worker)
		}
	}
	return workers
}

// Activate starts the offers. Before it, every session must have answered, or be unable to accept an offer of an
// earlier epoch. After that, and before Activate, the caller opens a window; top is the highest position in that
// window.
func (d *Dispatcher) Activate(top ledger.Position) {
	d.isActive = true
	if len(d.Unanswered()) > 0 {
		d.againThrough = top
	}
}

// Receive takes a report.
func (d *Dispatcher) Receive(r Report) {
	s := d.sessions[r.Session]
	if s == nil || r.Epoch != d.epoch || r.Incarnation != d.incarnation {
		return // without a live lease, or not in this epoch: the next probe announces it
	}
	d.roomier[s] = true
	s.isSilent = false
	isLatest := r.Sent >= s.echo
	s.echo = max(s.echo, r.Sent)
	s.received = max(s.received, r.Received)
	s.isLeaving = s.isLeaving || r.IsLeaving
	maps.DeleteFunc(s.unconfirmed, func(_ ledger.Kind, n int64) bool { return n <= s.received })
	for kind, n := range r.Asked {
		if _, isOfKind := s.Kinds[kind]; isOfKind && isLatest {
			s.asked[kind] = n
		}
	}
	if !s.hasAnswered() {
		d.learn(s, r)
		return
	}
	if d.mutant == neverFrees {
		return
	}
	for _, t := range s.dropped(r.Received, r.Held, d.mutant == freesByKey) {
		t.isReturned = !s.isLeaving
		d.noteEnding(t, true)
		d.doubt(t)
	}
}

// learn takes a report of a session that has not answered yet, with the tasks that the session holds from earlier
// epochs. When all of them are known, tasks that its worker has begun and does not hold become doubtful.
func (d *Dispatcher) learn(s *session, r Report) {
	if !s.hasReported {
		s.hasReported, s.adopted = true, r.After
		// Its lease may have ended in this epoch, with offers that are lost. So all that it has asked for is taken
		// back. It asks again when it receives the probe, which is repeated until then.
		s.given = maps.Clone(s.asked)
		s.sent++
		d.probe(s)
	}
	s.adopted = max(s.adopted, r.After) // a copy of an earlier report may have arrived first
	if !s.hasAnswered() && s.adopted == r.After {
		d.adopt(s, r)
	}
	if s.hasAnswered() {
		d.doubtAll(slices.Collect(maps.Values(d.running[s.Worker])))
	}
}

// adopt assigns to a session the tasks that it holds from an earlier epoch.
func (d *Dispatcher) adopt(s *session, r Report) {
	for _, h := range r.Listed {
		_, isOfKind := s.Kinds[h.Key.Kind]
		if !isOfKind || !h.isValid() || !s.isNext(h.Number) || s.holds >= s.Capacity || d.mutant == adoptsNothing {
			continue
		}
		t := d.tasks[h.Key]
		switch {
		case t == nil:
			t = &task{Task: Task{Key: h.Key, Version: h.Version, IsAgain: true}, isUnverified: true}
			d.tasks[h.Key] = t
		case t.place == running && t.Actor == s.Worker: // it has recorded the start since the offer
		case t.place == assigned || t.Version > h.Version:
			continue // its append will be refused, or it is the second start that the guarantee allows
		}
		d.takeOut(t)
		if t.Version < h.Version {
			t.Version, t.isUnverified = h.Version, true
		}
		t.isBeingRead = false
		s.assign(t, h.Number)
		d.noteOnWay(t, true)
	}
	if s.adopted = r.Through; !s.hasAnswered() {
		d.probe(s) // asks for the next ones
	}
}

// doubt records that it is unknown whether a task has ended.
func (d *Dispatcher) doubt(t *task) {
	d.takeOut(t)
	t.IsAgain = true
	if d.mutant == freesAtOnce {
		d.enqueue(t)
		return
	}
	t.place, t.ticket = doubtful, d.opened
	d.doubts = append(d.doubts, t)
}

// enqueue makes a task ready, or running if a worker has begun it that may still do it. A task that a live worker has
// begun and does not hold is offered to it again: the database has lost its outcome, and no other worker may continue.
func (d *Dispatcher) enqueue(t *task) {
	if t.Shard.Validate() != nil { // no worker can have it
		d.forget(t)
		return
	}
	t.owner = d.holder(t)
	if t.owner != nil && (!t.owner.hasAnswered() || !t.owner.Kinds[t.Key.Kind].Has(t.Shard)) {
		t.owner = nil
		d.run(t)
		return
	}
	t.isHolder = d.isHolder(&t.Task)
	q := d.queue(t.Key.Kind)
	// If the shard has another ready task, no session has room for one, or Match considers it already.
	isNews := t.owner != nil || !q.filled().Has(t.Shard)
	d.push(q, t)
	if isNews {
		d.note(q)
	}
}

// note records that a queue may have got tasks.
func (d *Dispatcher) note(q *queue) {
	if q.hasTasks() {
		d.busy[q.kind] = q
		d.expect(q)
	}
}

// push and remove put a ready task into its queue, and take it out.
func (d *Dispatcher) push(q *queue, t *task) {
	before := q.size
	q.push(t)
	d.size += q.size - before
}

func (d *Dispatcher) remove(q *queue, t *task) {
	before := q.size
	q.remove(t)
	d.size += q.size - before
	if t.Partition != "" && t.owner == nil {
		d.noteRead(q, t)
	}
}

// run records that a worker that may still do a task has begun it.
func (d *Dispatcher) run(t *task) {
	t.place = running
	of := d.running[t.Actor]
	if of == nil {
		of = map[ledger.Key]*task{}
		d.running[t.Actor] = of
	}
	of[t.Key] = t
}

// queue returns the queue of a kind.
func (d *Dispatcher) queue(kind ledger.Kind) *queue {
	q := d.queues[kind]
	if q == nil {
		q = &queue{kind: kind, owned: map[*session]*readyHeap{}, turn: 17 * len(d.queues)}
		for i := range q.levels {
			q.levels[i].mutant = d.mutant
		}
		d.queues[kind] = q
	}
	return q
}

// maxUnverified is the maximum number of tasks that one statement verifies. A worker may name many.
const maxUnverified = 10_000

// Unverified returns, each once, the next tasks that must be read from the ledger because only a worker has named them.
// The caller reads them by a statement that begins after the call, and passes them to [Dispatcher.Verify].
func (d *Dispatcher) Unverified() (keys []ledger.Key) {
	for _, t := range d.doubts {
		if len(keys) == maxUnverified {
			break
		}
		if d.mustBeVerified(t) {
			t.isBeingRead = true
			keys = append(keys, t.Key)
		}
	}
	return keys
}

func (d *Dispatcher) mustBeVerified(t *task) bool {
	return t.place == doubtful && t.isUnverified && !t.isBeingRead && d.mutant != isUnverified
}

// Verify records a task's version in the ledger, 0 if it does not exist, and the task if it is available or has begun;
// otherwise available is nil. The ledger may contain fewer events than the worker knows: a fail-over has lost some.
func (d *Dispatcher) Verify(k ledger.Key, version ledger.Version, available *Task) {
	t := d.tasks[k]
	if t == nil || !t.isBeingRead {
		return // an event or a worker has changed it since: it is read again
	}
	t.isBeingRead, t.isUnverified, t.ticket = false, false, d.opened
	if available == nil {
		t.place, t.Version = gone, version
		return
	}
	t.Task = *available
	t.IsAgain = true
}

// probe sends an offer without tasks. It announces the epoch and repeats the numbers of offers that may be lost.
func (d *Dispatcher) probe(s *session) { d.offers = append(d.offers, d.probeOf(s)) }

func (d *Dispatcher) probeOf(s *session) Offer {
	return Offer{Session: s.Session, Incarnation: d.incarnation, Epoch: d.epoch, Echo: s.echo, Number: s.sent,
		Given: maps.Clone(s.given), Adopted: s.adopted}
}

// Probe sends probes to the sessions that have not confirmed everything sent to them. The caller calls it at
// intervals, so that lost messages are replaced.
func (d *Dispatcher) Probe() {
	if d.mutant == neverProbes {
		return
	}
	for _, s := range d.ordered() {
		if !s.hasAnswered() || s.received < s.sent {
			d.probe(s)
		}
	}
}

// ordered returns the sessions by name.
func (d *Dispatcher) ordered() []*session {
	return slices.SortedFunc(maps.Values(d.sessions), func(a, b *session) int {
		return cmp.Compare(a.Session, b.Session)
	})
}

// Offers returns the messages to be sent, in their order.
func (d *Dispatcher) Offers() []Offer {
	offers := d.offers
	d.offers = nil
	return offers
}
