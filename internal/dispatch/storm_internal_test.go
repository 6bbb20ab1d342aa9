package dispatch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// After any faults, in larger worlds than TestExplore can search, all tasks end: no request, offer, task or start is
// lost for good.
func TestStormsEnd(t *testing.T) {
	for seed := range uint64(30) {
		s := newStorm(t, seed)
		for range 3000 {
			s.step()
		}
		s.finish()
		if t.Failed() {
			return
		}
	}
}

// storm is a ledger, a dispatcher, workers and the messages on their way.
type storm struct {
	*Dispatcher

	t       *testing.T
	seed    uint64
	random  *rand.Rand
	clock   time.Duration
	tasks   map[ledger.Key]*Task // those that are not done; Actor: it has begun
	log     []Event              // not applied yet
	top     ledger.Position
	workers []*stormWorker
	sql     Lease // a worker that claims
	sqlHas  bool  // its lease lives
}

type stormWorker struct {
	*Worker

	lease    Lease
	isAlive  bool // its lease lives
	seen     time.Duration
	reports  []Report
	offers   []Offer
	inFlight map[ledger.Key]*Task
}

var stormKinds = []ledger.Kind{"k0", "k1"}

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), tasks: map[ledger.Key]*Task{}}
	s.sql = Lease{Worker: "sql", Kinds: map[ledger.Kind]ledger.ShardSet{"k0": ledger.AllShards, "k1": ledger.AllShards}}
	for i := range 3 {
		w := &stormWorker{isAlive: true, inFlight: map[ledger.Key]*Task{}}
		w.lease = Lease{Worker: fmt.Sprint("w", i), Session: fmt.Sprint(i), Capacity: 1 + s.random.IntN(6),
			Kinds: map[ledger.Kind]ledger.ShardSet{"k0": ledger.ShardSet(3)}}
		if i > 0 {
			w.lease.Kinds["k1"] = ledger.ShardSet(i)
		}
		w.Worker = NewWorker(w.lease.Session, "i")
		s.workers = append(s.workers, w)
	}
	s.begin(1)
	return s
}

// begin starts a dispatcher in an epoch.
func (s *storm) begin(epoch int64) {
	s.Dispatcher = New("i", epoch, 4)
	s.log = nil // it reads what is committed
	for _, w := range s.workers {
		w.seen = -1
		if w.isAlive {
			s.Join(w.lease)
		}
	}
	if s.sqlHas {
		s.Join(s.sql)
	}
}

func (s *storm) oneIn(n int) bool { return s.random.IntN(n) == 0 }

func (s *storm) step() {
	w := s.workers[s.random.IntN(len(s.workers))]
	switch s.random.IntN(40) {
	case 0, 1, 2:
		s.enqueue()
	case 3, 4, 5, 6:
		s.window()
	case 7, 8, 9, 10, 11, 12:
		s.report(w)
	case 13, 14, 15, 16, 17, 18, 19, 20:
		s.deliver(w)
	case 21, 22, 23, 24, 25, 26, 27:
		s.work(w)
	case 28:
		if len(w.offers) > 0 { // lost
			w.offers = w.offers[1:]
		}
	case 29:
		if len(w.reports) > 0 {
			w.reports = w.reports[1:]
		}
	case 30:
		if len(w.offers) > 0 { // copied and late
			w.offers = append(w.offers, w.offers[0])
		}
	case 31:
		s.read(2)
	case 32:
		s.verify()
	case 33:
		s.Probe()
	case 34:
		s.claim()
	case 35:
		s.Check(w.lease.Worker)
	case 36:
		s.Silence(w.lease.Worker)
	case 37:
		s.Pause(map[ledger.Kind]bool{stormKinds[s.random.IntN(2)]: s.oneIn(2)})
	case 38:
		if w.isAlive = !w.isAlive; w.isAlive {
			s.Join(w.lease)
		} else {
			s.Leave(w.lease.Worker)
		}
	default:
		switch {
		case !s.isActive:
			s.activate()
		case s.oneIn(5):
			s.begin(s.epoch + 1)
		}
	}
	s.post()
}

// activate starts the offers, after a window.
func (s *storm) activate() {
	s.window()
	s.Activate(s.top)
}

// post matches, and puts the offers on their way.
func (s *storm) post() {
	s.Match()
	for _, o := range s.Offers() {
		for _, w := range s.workers {
			if w.lease.Session == o.Session {
				w.offers = append(w.offers, o)
			}
		}
	}
}

func (s *storm) append(t *Task, change Change, actor string) {
	t.Version++
	s.top++
	e := Event{Task: *t, Change: change, Author: actor}
	e.Task.Actor, e.Task.IsAgain, e.Task.Position = "", false, s.top
	if change == Available {
		t.Position, t.Actor = s.top, ""
	}
	if change == Begun {
		e.Task.Actor, t.Actor = actor, actor
	}
	s.log = append(s.log, e)
	if change == Ended {
		delete(s.tasks, t.Key)
	}
}

func (s *storm) enqueue() {
	kind := stormKinds[s.random.IntN(2)]
	t := &Task{Shard: ledger.Shard(s.random.IntN(2)), Partition: partition(s.random.IntN(3)),
		Key: ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprint(s.top))}}
	s.tasks[t.Key] = t
	s.append(t, Available, "")
}

func (s *storm) window() {
	ticket := s.Open()
	n := len(s.log)
	s.Apply(ticket, s.log[:n])
	s.log = s.log[n:]
}

func (s *storm) report(w *stormWorker) {
	for kind := range w.lease.Kinds {
		n := s.random.IntN(3)
		for k := range w.inFlight {
			if k.Kind == kind {
				n--
			}
		}
		w.Want(kind, max(0, n))
	}
	s.clock++
	w.reports = append(w.reports, w.Report(s.clock))
}

// deliver delivers the next messages of a worker.
func (s *storm) deliver(w *stormWorker) {
	if len(w.reports) > 0 {
		r := w.reports[0]
		w.reports = w.reports[1:]
		if r.Sent > w.seen && r.Epoch == s.epoch {
			w.seen = r.Sent
			s.Receive(r)
		}
	}
	if len(w.offers) > 0 {
		o := w.offers[0]
		w.offers = w.offers[1:]
		taken, _ := w.Receive(o)
		for _, t := range taken {
			w.inFlight[t.Key] = &t
		}
	}
}

// work does something with a task of a worker: it begins with or without a record, succeeds, fails, or is given back.
func (s *storm) work(w *stormWorker) {
	for key, t := range w.inFlight {
		now := s.tasks[key]
		switch {
		case now == nil || now.Version != t.Version && now.Actor != w.lease.Worker: // its append is refused
		case s.oneIn(3) && now.Actor == "":
			s.append(now, Begun, w.lease.Worker)
			t.Version = now.Version
			return
		case s.oneIn(6):
		case s.oneIn(4):
			s.append(now, Available, w.lease.Worker) // it fails, and is to begin again at once
		default:
			s.append(now, Ended, w.lease.Worker)
		}
		delete(w.inFlight, key)
		w.End(key)
		return
	}
}

// claim lets the worker that claims begin or end a task, or its lease end.
func (s *storm) claim() {
	if s.oneIn(4) {
		if s.sqlHas = !s.sqlHas; s.sqlHas {
			s.Join(s.sql)
		} else {
			s.Leave(s.sql.Worker)
		}
		return
	}
	for _, t := range s.tasks {
		switch {
		case s.sqlHas && t.Actor == "":
			s.append(t, Begun, s.sql.Worker)
		case s.sqlHas && t.Actor == s.sql.Worker:
			s.append(t, Ended, s.sql.Worker)
		}
		return
	}
}

func (s *storm) read(windows int) {
	partitions := map[string]bool{}
	for _, t := range s.tasks {
		if t.Partition != "" {
			partitions[t.Partition] = true
		}
	}
	for _, r := range s.normalReads(slices.Sorted(maps.Keys(partitions))...) {
		var rows []Task
		for _, t := range s.tasks {
			if t.Key.Kind == r.Kind && t.Partition == r.Partition && t.Position > r.After {
				rows = append(rows, *t)
			}
		}
		slices.SortFunc(rows, func(a, b Task) int { return int(a.Position - b.Position) })
		isEnd := len(rows) < r.Limit
		rows = rows[:min(len(rows), r.Limit)]
		for range s.random.IntN(windows + 1) {
			s.enqueue()
			s.work(s.workers[0])
			s.window()
			s.post()
		}
		s.TakeRead(r, rows, last(rows), isEnd)
	}
}

func (s *storm) verify() {
	for _, k := range s.Unverified() {
		if t := s.tasks[k]; t == nil {
			s.Verify(k, 0, nil)
		} else {
			one := *t
			s.Verify(k, t.Version, &one)
		}
	}
}

// finish lets everything work, without faults.
func (s *storm) finish() {
	s.Pause(nil)
	for _, w := range s.workers {
		if !w.isAlive {
			w.isAlive = true
			s.Join(w.lease)
		}
	}
	s.Leave(s.sql.Worker)
	s.sqlHas = false
	for range 20 {
		s.enqueue()
	}
	for range 1500 {
		if len(s.tasks) == 0 {
			return
		}
		if !s.isActive && len(s.Unanswered()) == 0 {
			s.activate()
		}
		s.window()
		s.read(0)
		s.verify()
		s.Probe()
		s.post()
		for _, w := range s.workers {
			s.report(w)
			for len(w.offers)+len(w.reports) > 0 {
				s.deliver(w)
			}
			s.work(w)
			s.work(w)
		}
		s.post()
	}
	for key, t := range s.tasks {
		known := s.Dispatcher.tasks[key]
		s.t.Errorf("seed %d: %+v never ends; in the dispatcher: %+v", s.seed, *t, known)
	}
}
