package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// Whatever happens, no task stays ready while a worker has room for it, although Match considers only what has changed;
// and the dispatcher finds all tasks that a live worker takes.
func TestNoReadyTaskStaysWhileAWorkerHasRoom(t *testing.T) {
	for seed := range uint64(20) {
		c := &chaos{Dispatcher: New("i", 1, 8), random: rand.New(rand.NewPCG(seed, 0)), t: t,
			ledger: map[ledger.Key]Task{}}
		if seed%2 == 0 {
			c.Activate(0)
		}
		for range 2000 {
			c.step()
			c.Match()
			c.check(seed)
			if t.Failed() {
				return
			}
		}
		c.finish(seed)
	}
}

// Many kinds have ready tasks, and all workers are busy. A report costs as much as its worker has got room for.
func TestAReportIsMatchedForItsWorkerOnly(t *testing.T) {
	const workers, kinds = 50, 50
	d := New("i", 1, 10_000)
	all := map[ledger.Kind]ledger.ShardSet{}
	asked := map[ledger.Kind]int64{}
	var events []Event
	for i := range kinds {
		kind := ledger.Kind(fmt.Sprint("k", i))
		all[kind], asked[kind] = ledger.AllShards, 0
		for n := range 3 {
			events = append(events, ofKind(kind, fmt.Sprint(n), i+n+1))
		}
	}
	for w := range workers {
		d.Join(Lease{Worker: fmt.Sprint(w), Session: fmt.Sprint(w), Capacity: 1000, Kinds: all})
		d.Receive(Report{Session: fmt.Sprint(w), Incarnation: "i", Epoch: 1, Asked: asked})
	}
	d.Activate(0)
	for _, r := range d.normalReads() {
		d.takeNormal(r.Kind, nil, 0, true)
	}
	d.Apply(d.Open(), events)
	d.Match()
	d.Offers()
	same(t, "kinds with ready tasks", len(d.busy), kinds)
	asked["k7"] = 1
	d.Receive(Report{Session: "3", Incarnation: "i", Epoch: 1, Received: d.sessions["3"].sent, Asked: asked})
	for s := range d.roomier {
		d.addRoomier(s)
	}
	same(t, "kinds to be matched", len(d.due), 1)
	same(t, "workers for it", len(d.queues["k7"].candidates()), 1)
	d.Match()
	same(t, "offers", len(d.Offers()), 1)
}

// A task costs little, however many workers are idle, or busy while others wait.
func TestATaskIsMatchedWithFewWorkers(t *testing.T) {
	const workers = 1000
	s := newShop(10_000)
	var all []*shopWorker
	for i := range workers {
		all = append(all, s.join(fmt.Sprint(i), fmt.Sprint(i), 1, 1, ledger.AllShards))
	}
	s.begin()
	q := s.queues[testKind]
	for i := range 10 {
		s.Apply(s.Open(), []Event{available(fmt.Sprint(i), i+1)})
		same(t, "idle workers that are considered", len(q.idle(q.size)), 1)
		s.exchange()
	}
	for i := 10; i < workers+1; i++ {
		s.apply(available(fmt.Sprint(i), i+1))
	}
	s.Apply(s.Open(), []Event{available("next", workers+2)})
	same(t, "kinds to be matched while all workers are busy", len(s.due), 0)
	s.end(all[7], all[7].got[0])
	s.exchange()
	same(t, "tasks of a worker that has room again", len(all[7].got), 2)
}

// chaos does anything to a dispatcher.
type chaos struct {
	*Dispatcher

	t        *testing.T
	random   *rand.Rand
	position int
	ledger   map[ledger.Key]Task // the last events of tasks; Position 0: it has ended
}

func (c *chaos) kind() ledger.Kind { return ledger.Kind(fmt.Sprint("k", c.random.IntN(4))) }

func (c *chaos) worker() string { return fmt.Sprint("w", c.random.IntN(4)) }

func (c *chaos) lease() Lease {
	l := Lease{Worker: c.worker(), Capacity: c.random.IntN(6), Kinds: map[ledger.Kind]ledger.ShardSet{}}
	l.Session = fmt.Sprint(l.Worker, ".", c.random.IntN(2))
	for range c.random.IntN(4) {
		l.Kinds[c.kind()] = ledger.ShardSet(1 + c.random.IntN(7))
	}
	return l
}

func (c *chaos) step() {
	switch n := c.random.IntN(20); {
	case n < 2:
		c.Join(c.lease())
	case n < 3:
		c.Leave(c.worker())
	case n < 9:
		c.report()
	case n < 14:
		c.window()
	case n < 15:
		paused := map[ledger.Kind]bool{}
		for range c.random.IntN(3) {
			paused[c.kind()] = true
		}
		c.Pause(paused)
	case n < 16:
		c.Check(c.worker())
	case n < 17:
		c.Silence(c.worker())
	case n < 18:
		c.read(2)
	case !c.isActive:
		c.Activate(0)
	}
}

// report is of any session, with any sums and holdings.
func (c *chaos) report() {
	all := c.ordered()
	if len(all) == 0 {
		return
	}
	s := all[c.random.IntN(len(all))]
	r := Report{Session: s.Session, Incarnation: "i", Epoch: 1, Asked: map[ledger.Kind]int64{}, Received: s.sent}
	for kind := range s.Kinds {
		r.Asked[kind] = s.given[kind] + int64(c.random.IntN(4))
	}
	for _, x := range s.numbers {
		if c.random.IntN(3) > 0 {
			r.Held = append(r.Held, Range{x.n, x.n})
		}
	}
	c.Receive(r)
}

// window has a few events, of known and of other tasks.
func (c *chaos) window() {
	var events []Event
	for range c.random.IntN(4) {
		key := ledger.Key{Kind: c.kind(), BizID: ledger.BizID(fmt.Sprint(c.random.IntN(30)))}
		c.position++
		e := Event{Task: Task{Key: key, Version: c.ledger[key].Version + 1, Position: ledger.Position(c.position),
			Shard: ledger.Shard(c.random.IntN(3))}, Author: c.worker(), Change: Change(c.random.IntN(3))}
		if e.Change == Begun {
			e.Actor = e.Author
		}
		events = append(events, e)
		if e.Change == Ended {
			e.Position = 0
		}
		c.ledger[key] = e.Task
	}
	c.Apply(c.Open(), events)
}

// read answers reads, with up to this number of windows during each.
func (c *chaos) read(windows int) {
	for _, r := range c.normalReads() {
		var rows []Task
		for _, t := range c.ledger {
			if t.Key.Kind == r.Kind && t.Position > r.After {
				rows = append(rows, t)
			}
		}
		slices.SortFunc(rows, func(a, b Task) int { return int(a.Position - b.Position) })
		isEnd := len(rows) < r.Limit
		rows = rows[:min(len(rows), r.Limit)]
		for range c.random.IntN(windows + 1) {
			c.window()
		}
		c.takeNormal(r.Kind, rows, last(rows), isEnd)
	}
}

// finish lets workers end all tasks, until all were read.
func (c *chaos) finish(seed uint64) {
	c.Activate(0)
	c.Pause(nil)
	var ended []Event
	for range 200 {
		c.Apply(c.Open(), ended)
		ended = nil
		for _, s := range c.ordered() {
			r := Report{Session: s.Session, Incarnation: "i", Epoch: 1, Received: s.sent,
				Asked: map[ledger.Kind]int64{}}
			for kind := range s.Kinds {
				r.Asked[kind] = s.given[kind] + 2
			}
			c.Receive(r)
		}
		c.Match()
		for _, o := range c.Offers() {
			for _, t := range o.Tasks {
				if t.Version == c.ledger[t.Key].Version {
					t.Version++
					ended = append(ended, Event{Task: t})
					delete(c.ledger, t.Key)
				}
			}
		}
		c.read(0)
	}
	for key, t := range c.ledger {
		q := c.queues[key.Kind]
		if t.Position > 0 && q != nil && q.shards.Has(t.Shard) && c.tasks[key] == nil {
			c.t.Errorf("seed %d: %v is lost", seed, t)
		}
	}
}

func (c *chaos) check(seed uint64) {
	c.Offers()
	if !c.isActive {
		return
	}
	for kind, q := range c.queues {
		if q.hasTasks() != (c.busy[kind] == q) {
			c.t.Errorf("seed %d: kind %s with %d ready tasks is busy: %t", seed, kind, q.size, c.busy[kind] == q)
		}
		for _, s := range q.sessions {
			if first := q.next(s); first != nil && s.room(kind) > 0 && !c.paused[kind] {
				c.t.Errorf("seed %d: %s has room for %d tasks, and %v is ready",
					seed, s.Session, s.room(kind), first.Key)
			}
		}
	}
}
