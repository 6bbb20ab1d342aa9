package dispatch

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

const (
	testKind        = ledger.Kind("k")
	testIncarnation = "i"
)

func testKey(i int) ledger.Key { return ledger.Key{Kind: testKind, BizID: ledger.BizID(rune('a' + i))} }

func sessionOf(w int) string { return string(rune('0' + w)) }

// setup is a small world to be searched: how many of everything, and how many faults may happen.
type setup struct {
	name                            string
	tasks, workers, capacity, limit int
	partitions                      int // of the tasks, in turn; the first one is ""

	hasTakeOver        bool // a second dispatcher begins, while the first one goes on
	isDead             bool // it does not: it is killed
	reports            int  // the number of reports of a worker that may be on their way; 0: 1
	losses             int  // messages that are lost
	copies             int  // messages that are delayed or arrive twice
	beats              int  // reports without news
	giveBacks          int  // tasks that a worker ends without an event
	hints              int  // tasks that a dispatcher reads ahead of the window
	silences           int  // workers whose reports do not arrive for a while
	lapses             int  // leases that end and live again
	hasLateCommit      bool // the second task is enqueued second and commits at any time
	hasOldAnnouncement bool // an announcement of the first epoch is late
	isSlow             bool // reading a window, tasks or heads takes time, in which anything happens
}

// world is a ledger, two dispatchers, workers, and the messages on their way.
type world struct {
	setup  *setup
	mutant mutant

	log         []entry // the events in the order of their commits
	isCommitted []bool  // by task: its first event
	isDone      []bool
	begins      []int
	isExcused   []bool // held by a worker that was silent, when a dispatcher became active or later

	dispatchers [2]*desk
	workers     []*hand
	messages    []message

	isFenced                                bool // workers refuse the first dispatcher, whose lease has ended
	losses, copies, beats, giveBacks, hints int
	silences, lapses                        int
}

// entry is an event in the log.
type entry struct {
	task    int
	version ledger.Version
}

// desk is a dispatcher with its shell.
type desk struct {
	*Dispatcher

	isDead bool
	fed    int // the events of the log before this one are applied

	ticket int64 // of the open window; 0: none
	until  int   // its events end before this one

	isReading bool
	searches  []Search
	reads     []Read
	hasRows   bool
	rows      [][]Task // of the reads
	isEnd     []bool
	found     Found

	hinted   []Task // read ahead of the window, when hintedAt windows were applied
	hintedAt int64

	isVerifying bool // it has asked the ledger for the tasks in unverified
	unverified  []ledger.Key
}

// hand is a worker with its shell.
type hand struct {
	*Worker

	phases []phase // by task
	last   string  // the report that was sent last
}

type phase int

const (
	notHeld phase = iota
	queued
	begun
	committed
)

// message is on its way. Those of one channel arrive in their order, unless isStray is set.
type message struct {
	report  *Report
	offer   *Offer
	from    int // the dispatcher of an offer
	key     string
	isStray bool
}

// channel is a name of one byte.
func (m *message) channel() byte {
	if m.report != nil {
		return m.report.Session[0]
	}
	return m.offer.Session[0] + byte(10+10*m.from)
}

func reportMessage(r Report) message { return message{report: &r, key: describe(r)} }

func offerMessage(o Offer, from int) message {
	k := keyWriter{}
	k.text(o.Session)
	k.ints(int(o.Epoch), int(o.Number), int(max(o.Adopted, -100)), len(o.Tasks), from)
	k.sums(o.Given)
	for _, t := range o.Tasks {
		k.text(string(t.Key.BizID))
		k.ints(int(t.Version))
		k.bools(t.IsAgain)
	}
	return message{offer: &o, from: from, key: string(k.b)}
}

// describe encodes a report.
func describe(r Report) string {
	k := keyWriter{}
	k.text(r.Session)
	k.ints(int(r.Epoch), int(r.Received), int(r.After), int(r.Through), len(r.Held))
	k.sums(r.Asked)
	for _, held := range r.Held {
		k.ints(int(held.First), int(held.Last))
	}
	for _, h := range r.Listed {
		k.text(string(h.Key.BizID))
		k.ints(int(h.Version), int(h.Number))
	}
	return string(k.b)
}

func (m *message) String() string {
	if m.report != nil {
		return fmt.Sprintf("report%+v", *m.report)
	}
	return fmt.Sprintf("offer%+v", *m.offer)
}

func newWorld(s *setup, m mutant) *world {
	w := &world{setup: s, mutant: m, losses: s.losses, copies: s.copies, beats: s.beats, giveBacks: s.giveBacks,
		hints: s.hints, silences: s.silences, lapses: s.lapses,
		isCommitted: make([]bool, s.tasks), isDone: make([]bool, s.tasks), begins: make([]int, s.tasks),
		isExcused: make([]bool, s.tasks)}
	for t := range s.tasks {
		if t != late || !s.hasLateCommit {
			w.commit(t)
		}
	}
	for i := range s.workers {
		h := &hand{Worker: NewWorker(sessionOf(i), testIncarnation), phases: make([]phase, s.tasks)}
		h.mutant = m
		w.workers = append(w.workers, h)
	}
	w.begin(0)
	d := w.dispatchers[0]
	if s.hasTakeOver { // the first dispatcher is at work: its start is searched without a second one
		d.Offers()
		for i, h := range w.workers {
			h.enter(1)
			h.want(s.capacity)
			d.Receive(h.Report(0))
			for _, o := range d.Offers() {
				h.Receive(o)
			}
			h.want(s.capacity)
			d.Receive(h.Report(0))
			h.last = describe(h.Report(0))
			w.workers[i] = h
		}
		w.activate(0)
		d.Offers()
	}
	if s.hasOldAnnouncement {
		m := offerMessage(Offer{Session: sessionOf(0), Incarnation: testIncarnation, Epoch: 1, Adopted: notAdopted}, 0)
		m.isStray = true
		w.messages = append(w.messages, m)
	}
	return w
}

// late is the task that commits late.
const late = 1

// commit makes the first event of a task visible.
func (w *world) commit(t int) {
	w.isCommitted[t] = true
	w.log = append(w.log, entry{t, 1})
}

// begin starts a dispatcher.
func (w *world) begin(i int) {
	d := &desk{Dispatcher: New(testIncarnation, int64(i+1), w.setup.limit)}
	d.mutant = w.mutant
	w.dispatchers[i] = d
	for k := range w.workers {
		d.Join(Lease{Worker: "w" + sessionOf(k), Session: sessionOf(k), Capacity: w.setup.capacity,
			Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	}
	if w.mutant == readsBefore {
		d.isActive = true
		w.read(d)
		d.isActive = false
		d.fed = len(w.log)
	}
	w.post(i)
}

// activate starts a dispatcher's offers. Its first window ends here.
func (w *world) activate(i int) {
	d := w.dispatchers[i]
	if len(d.Unanswered()) > 0 {
		w.isFenced = true
		for _, worker := range d.Unanswered() {
			h := w.workers[worker[1]-'0']
			for t, p := range h.phases {
				w.isExcused[t] = w.isExcused[t] || p != notHeld
			}
		}
	}
	d.Activate(ledger.Position(w.setup.tasks))
	if w.mutant != readsBefore {
		d.fed = len(w.log)
		if !w.setup.isSlow {
			w.read(d)
		}
	}
}

// read answers a request of a dispatcher at once.
func (w *world) read(d *desk) {
	w.ask(d)
	w.answer(d)
	d.take()
}

// ask takes the requests of a dispatcher.
func (w *world) ask(d *desk) {
	d.searches, d.reads = d.normalRequests()
	d.isReading = true
}

// answer reads the ledger for a dispatcher.
func (w *world) answer(d *desk) {
	d.rows, d.isEnd, d.hasRows = nil, nil, true
	for _, r := range d.reads {
		rows, isEnd := w.available(r)
		d.rows, d.isEnd = append(d.rows, rows), append(d.isEnd, isEnd)
	}
	d.found = Found{IsEnd: true, IsWhole: true}
	for p := 1; p < w.setup.partitions; p++ {
		if rows, _ := w.available(Read{Partition: partition(p), Limit: 1}); len(rows) > 0 {
			d.found.Listed = append(d.found.Listed, partition(p))
		}
	}
}

// take passes the ledger's answers to a dispatcher.
func (d *desk) take() {
	for _, s := range d.searches {
		d.TakeSearch(s, d.found, false)
	}
	for i, r := range d.reads {
		d.TakeRead(r, d.rows[i], last(d.rows[i]), d.isEnd[i])
	}
	d.searches, d.reads, d.rows, d.isEnd = nil, nil, nil, nil
	d.isReading, d.hasRows = false, false
}

// partition returns the name of a partition.
func partition(p int) string { return []string{"", "p", "q"}[p] }

// available returns the ledger's answer to a request.
func (w *world) available(r Read) (rows []Task, isEnd bool) {
	for t := range w.isDone {
		if w.isCommitted[t] && !w.isDone[t] && w.position(t) > r.After && len(rows) < r.Limit &&
			w.task(t).Partition == r.Partition {
			rows = append(rows, w.task(t))
		}
	}
	return rows, len(rows) < r.Limit
}

// last returns the position up to which tasks were read.
func last(rows []Task) ledger.Position {
	if len(rows) == 0 {
		return 0
	}
	return rows[len(rows)-1].Position
}

func (w *world) position(t int) ledger.Position { return ledger.Position(t + 1) }

func (w *world) task(t int) Task {
	return Task{Key: testKey(t), Version: 1, Position: w.position(t),
		Partition: partition(t % max(1, w.setup.partitions))}
}

// post puts the offers of a dispatcher on their way. A probe that repeats one on its way is left out: it would make the
// world endless.
func (w *world) post(i int) {
	for _, o := range w.dispatchers[i].Offers() {
		m := offerMessage(o, i)
		if len(o.Tasks) > 0 || !slices.ContainsFunc(w.messages, func(one message) bool {
			return one.key == m.key && !one.isStray
		}) {
			w.messages = append(w.messages, m)
		}
	}
}

func (h *hand) want(capacity int) {
	h.Want(testKind, max(0, capacity-len(h.held)))
}

// act is one thing that may happen next.
type act struct {
	name    func() string
	isFault bool
	do      func(*world)
}

// acts returns everything that may happen next, in a fixed order.
func (w *world) acts() (all []act) {
	add := func(isFault bool, do func(*world), name string, args ...any) {
		all = append(all, act{func() string { return fmt.Sprintf(name, args...) }, isFault, do})
	}
	w.addMessages(add)
	w.addWorkers(add)
	for i, d := range w.dispatchers {
		if d != nil && !d.isDead {
			w.addDispatcher(i, d, add)
		}
	}
	if w.setup.hasLateCommit && !w.isCommitted[late] {
		add(false, func(w *world) { w.commit(late) }, "the late task commits")
	}
	if w.setup.hasTakeOver && w.dispatchers[1] == nil {
		add(true, func(w *world) {
			w.dispatchers[0].isDead = w.setup.isDead
			w.begin(1)
		}, "TAKE OVER")
	}
	return all
}

type adder = func(isFault bool, do func(*world), name string, args ...any)

func (w *world) addMessages(add adder) {
	var seen [256]bool
	for i := range w.messages {
		m := &w.messages[i]
		if c := m.channel(); !m.isStray {
			if seen[c] {
				continue
			}
			seen[c] = true
		}
		add(false, func(w *world) { w.deliver(w.remove(i)) }, "deliver %s", m)
		if w.losses > 0 {
			add(true, func(w *world) { w.losses--; w.remove(i) }, "LOSE %s", m)
		}
		if w.copies > 0 && !m.isStray {
			add(true, func(w *world) { w.copies--; w.stray(i) }, "DELAY %s", m)
			add(true, func(w *world) { w.copies--; w.deliver(w.stray(i)) }, "COPY %s", m)
		}
	}
}

func (w *world) remove(i int) message {
	m := w.messages[i]
	w.messages = slices.Delete(w.messages, i, i+1)
	return m
}

// stray lets a message arrive at any time.
func (w *world) stray(i int) message {
	w.messages[i].isStray = true
	return w.messages[i]
}

func (w *world) deliver(m message) {
	if m.report != nil {
		for i, d := range w.dispatchers {
			if d != nil && !d.isDead {
				d.Receive(*m.report)
				w.post(i)
			}
		}
		return
	}
	if w.isFenced && m.from == 0 && w.mutant != hasNoBarrier {
		return
	}
	h := w.workers[m.offer.Session[0]-'0']
	taken, _ := h.Receive(*m.offer)
	for _, t := range taken {
		h.phases[t.Key.BizID[0]-'a'] = queued
	}
	h.want(w.setup.capacity)
}

func (w *world) addWorkers(add adder) {
	for i, h := range w.workers {
		for t, p := range h.phases {
			switch p {
			case queued:
				add(false, func(w *world) { w.workers[i].phases[t] = begun; w.begins[t]++ }, "w%d begins %d", i, t)
				if w.giveBacks > 0 {
					add(true, func(w *world) { w.giveBacks--; w.end(i, t) }, "w%d gives %d back", i, t)
				}
			case begun:
				add(false, func(w *world) {
					w.workers[i].phases[t] = committed
					if !w.isDone[t] {
						w.isDone[t] = true
						w.log = append(w.log, entry{t, 2})
					}
				}, "w%d commits %d", i, t)
			case committed:
				add(false, func(w *world) { w.end(i, t) }, "w%d ends %d", i, t)
			case notHeld:
			}
		}
		w.addReport(i, h, add)
	}
}

func (w *world) end(i, t int) {
	h := w.workers[i]
	h.phases[t] = notHeld
	h.End(testKey(t))
	h.want(w.setup.capacity)
}

// addReport adds reports: with news, needed by a dispatcher, and some without news.
func (w *world) addReport(i int, h *hand, add adder) {
	onWay := 0
	for _, m := range w.messages {
		if m.report != nil && m.report.Session == h.session {
			onWay++
		}
	}
	send := func(w *world) {
		h := w.workers[i]
		r := h.Report(0)
		h.last = describe(r)
		w.messages = append(w.messages, reportMessage(r))
	}
	switch now := describe(h.clone().Report(0)); {
	case now != h.last && onWay < max(1, w.setup.reports):
		add(false, send, "w%d reports", i)
	case now == h.last && onWay == 0 && w.isBehind(h):
		add(false, send, "w%d reports again", i)
	case now == h.last && onWay <= max(1, w.setup.reports) && w.beats > 0:
		add(true, func(w *world) { w.beats--; send(w) }, "w%d reports for no reason", i)
	}
}

// isBehind reports whether a dispatcher that the worker follows has not received its side.
func (w *world) isBehind(h *hand) bool {
	for _, d := range w.dispatchers {
		if d == nil || d.isDead || d.epoch < h.epoch {
			continue
		}
		s := d.sessions[h.session]
		if d.epoch > h.epoch || !s.hasAnswered() || s.isSilent || s.received != h.received ||
			!maps.Equal(s.asked, h.asked) || s.holds > len(h.held) {
			return true
		}
	}
	return false
}

func (w *world) addDispatcher(i int, d *desk, add adder) {
	if !d.isActive {
		if isAll := len(d.Unanswered()) == 0; isAll || w.setup.hasTakeOver && i == 1 {
			add(false, func(w *world) { w.activate(i) }, "d%d is active, all answered: %v", i, isAll)
		}
	}
	if w.mutant != neverProbes && !w.hasOffer(i) && w.needsProbe(d) {
		add(false, func(w *world) { w.dispatchers[i].Probe(); w.post(i) }, "d%d probes", i)
	}
	switch {
	case d.ticket != 0:
		add(false, func(w *world) { w.apply(w.dispatchers[i]) }, "d%d applies its window", i)
	case d.isActive && (d.fed < len(w.log) || d.hasDoubts()):
		add(false, func(w *world) {
			d := w.dispatchers[i]
			d.ticket, d.until = d.Open(), len(w.log)
			if !w.setup.isSlow {
				w.apply(d)
			}
		}, "d%d opens a window", i)
	}
	if !d.isActive || d.queues[testKind] == nil {
		return
	}
	w.addSilences(i, d, add)
	w.addLapses(i, d, add)
	w.addReads(i, d, add)
	w.addHints(i, d, add)
	if q := d.queues[testKind]; q.size > 0 {
		for _, s := range d.ordered() {
			if s.room(testKind) > 0 {
				add(false, func(w *world) {
					d := w.dispatchers[i]
					d.offer(d.queues[testKind], d.sessions[s.Session], 1)
					w.post(i)
				}, "d%d offers %s to %s", i, q.next(s).Key, s.Worker)
			}
		}
	}
}

// addSilences lets no report of a worker reach a dispatcher for a while. Its tasks may begin twice.
func (w *world) addSilences(i int, d *desk, add adder) {
	for _, s := range d.ordered() {
		if w.silences == 0 || s.isSilent || !s.hasAnswered() {
			continue
		}
		add(true, func(w *world) {
			d := w.dispatchers[i]
			w.silences--
			for _, t := range d.sessions[s.Session].unrecorded(d.sessions[s.Session].sent) {
				w.isExcused[t.Key.BizID[0]-'a'] = true
			}
			d.Silence(s.Worker)
		}, "d%d HEARS NOTHING of %s", i, s.Worker)
	}
}

// addLapses lets the lease of a worker end and live again. Its tasks may begin twice.
func (w *world) addLapses(i int, d *desk, add adder) {
	for _, s := range d.ordered() {
		if w.lapses == 0 {
			return
		}
		add(true, func(w *world) {
			d := w.dispatchers[i]
			w.lapses--
			for t, p := range w.workers[s.Session[0]-'0'].phases {
				w.isExcused[t] = w.isExcused[t] || p != notHeld
			}
			for _, t := range d.sessions[s.Session].assigned(math.MaxInt64) {
				w.isExcused[t.Key.BizID[0]-'a'] = true
			}
			l := d.sessions[s.Session].Lease
			d.Leave(l.Worker)
			d.Join(l)
			w.post(i)
		}, "the lease of %s LAPSES for d%d", s.Worker, i)
	}
}

func (w *world) addReads(i int, d *desk, add adder) {
	switch q := d.queues[testKind]; {
	case d.hasRows:
		add(false, func(w *world) {
			w.dispatchers[i].take()
		}, "d%d takes what it has read", i)
	case d.isReading:
		add(false, func(w *world) {
			w.answer(w.dispatchers[i])
		}, "the ledger answers d%d", i)
	case q.isSpilled() && d.wantsNormal(q.normal()) && !d.isReading:
		add(false, func(w *world) {
			d := w.dispatchers[i]
			if w.setup.isSlow {
				w.ask(d)
			} else {
				w.read(d)
			}
		}, "d%d reads on", i)
	}
	if d.isVerifying {
		add(false, func(w *world) { w.verify(w.dispatchers[i]) }, "d%d verifies", i)
	} else if d.hasUnverified() {
		add(false, func(w *world) {
			d := w.dispatchers[i]
			d.unverified, d.isVerifying = d.Unverified(), true
			if !w.setup.isSlow {
				w.verify(d)
			}
		}, "d%d asks for heads", i)
	}
}

// addHints lets a dispatcher read a task ahead of the window, and take it.
func (w *world) addHints(i int, d *desk, add adder) {
	if d.hinted != nil {
		add(false, func(w *world) { w.hint(w.dispatchers[i]) }, "d%d takes hint %s", i, d.hinted[0].Key)
		return
	}
	for _, e := range w.log[d.fed:] {
		if e.version != 1 || w.isDone[e.task] || w.hints == 0 {
			continue
		}
		add(true, func(w *world) {
			d := w.dispatchers[i]
			w.hints--
			d.hinted, d.hintedAt = []Task{w.task(e.task)}, d.Applied()
			if !w.setup.isSlow {
				w.hint(d)
			}
		}, "d%d reads hint %d", i, e.task)
	}
}

func (w *world) hint(d *desk) {
	d.Hint(d.hintedAt, d.hinted)
	d.hinted = nil
}

func (d *desk) hasDoubts() bool {
	return slices.ContainsFunc(d.doubts, func(t *task) bool { return t.place == doubtful || t.place == gone })
}

func (d *desk) hasUnverified() bool {
	return d.mutant != isUnverified && slices.ContainsFunc(d.doubts, func(t *task) bool {
		return t.place == doubtful && t.isUnverified && !t.isBeingRead
	})
}

func (w *world) verify(d *desk) {
	for _, k := range d.unverified {
		t := int(k.BizID[0] - 'a')
		if w.isDone[t] {
			d.Verify(k, 2, nil)
		} else {
			one := w.task(t)
			d.Verify(k, 1, &one)
		}
	}
	d.unverified, d.isVerifying = nil, false
}

func (w *world) apply(d *desk) {
	var events []Event
	for _, e := range w.log[d.fed:d.until] {
		one := Event{Task: w.task(e.task), Change: Available}
		if one.Version = e.version; e.version == 2 {
			one.Change = Ended
		}
		events = append(events, one)
	}
	d.Apply(d.ticket, events)
	d.fed, d.ticket, d.until = d.until, 0, 0
}

func (w *world) hasOffer(i int) bool {
	return slices.ContainsFunc(w.messages, func(m message) bool { return m.offer != nil && m.from == i && !m.isStray })
}

// needsProbe reports whether a probe would teach a worker something, and nothing on its way does.
func (w *world) needsProbe(d *desk) bool {
	for _, s := range d.sessions {
		h := w.workers[s.Session[0]-'0']
		if h.epoch > d.epoch || s.hasAnswered() && s.received == s.sent {
			continue
		}
		if h.epoch < d.epoch || h.received < s.sent || h.adopted < s.adopted {
			return true
		}
	}
	return false
}

// verdict returns the task that has begun twice without an excuse, or -1, and whether all tasks are done.
func (w *world) verdict() (twice int, isDone bool) {
	for t, n := range w.begins {
		if n > 1 && !w.isExcused[t] {
			return t, false
		}
	}
	return -1, !slices.Contains(w.isDone, false)
}

// wantsNormal reports whether a dispatcher wants to read tasks without a priority.
func (d *desk) wantsNormal(l *level) bool {
	q := d.queues[testKind]
	return d.wants(q, l, &l.plain) || l.partitions != nil && len(l.due) > 0 || d.wantsSearch(q, l)
}
