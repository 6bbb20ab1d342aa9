package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// clocked is a shop with limits and the database's clock.
type clocked struct {
	*shop

	at time.Time
}

func (c *clocked) limits(all ...Limit) {
	c.Limit(all)
	for _, name := range c.PermitReads() {
		c.TakePermits(name, InUse{At: c.at}, false)
	}
	c.exchange()
}

// wait lets time pass.
func (c *clocked) wait(d time.Duration) {
	c.at = c.at.Add(d)
	c.Tick(c.at)
	c.exchange()
}

func (c *clocked) start(id string, position int) {
	e := available(id, position).as(Begun, 2, "a")
	e.IsStart, e.RecordedAt = true, c.at
	c.apply(e)
}

func newClocked(t *testing.T) (*clocked, *shopWorker) {
	t.Helper()
	c := &clocked{shop: newShop(100), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	a := c.join("a", "1", 50, 50, ledger.AllShards)
	c.begin()
	c.Tick(c.at)
	return c, a
}

// Tasks of a kind with a rate are offered when a token can be used again, and the gate knows when that is.
func TestGateOfARate(t *testing.T) {
	c, a := newClocked(t)
	c.limits(Limit{Name: "r", Kinds: map[ledger.Kind]int{testKind: 1}, MaxRunning: -1, Burst: 3, Window: time.Second})
	c.apply(tasksFrom(1, 9)...)
	same(t, "tasks of the burst", len(a.got), 3)
	same(t, "opening before a start is known", c.OpensAt().IsZero(), true)
	c.start("t1", 1)
	same(t, "opening", c.OpensAt(), c.at.Add(time.Second))
	c.wait(300 * time.Millisecond)
	c.start("t2", 2)
	c.start("t3", 3)
	c.apply(available("t1", 1).as(Ended, 3, "a"))
	same(t, "tasks within the window", len(a.got), 3)
	c.wait(699 * time.Millisecond)
	same(t, "tasks before the window has passed", len(a.got), 3)
	c.wait(time.Millisecond)
	same(t, "tasks after the window", len(a.got), 4)
	c.wait(time.Second)
	same(t, "tasks after a second window", len(a.got), 6) // the fourth is on its way
}

// The tokens in use are read, and starts during the read count too.
func TestTokensAreRead(t *testing.T) {
	c, a := newClocked(t)
	c.Limit([]Limit{{
		Name: "r", Kinds: map[ledger.Kind]int{testKind: 2}, MaxRunning: -1, Burst: 8, Window: time.Second}})
	c.apply(tasksFrom(1, 9)...)
	same(t, "tasks before the read", len(a.got), 0)
	same(t, "reads", c.PermitReads(), []string{"r"})
	read := InUse{At: c.at, Starts: []Start{{At: c.at.Add(-time.Second / 2), Tokens: 1}}}
	c.wait(time.Millisecond)
	c.start("x1", 100)
	c.TakePermits("r", read, false)
	c.exchange()
	same(t, "tasks of weight 2 with 5 of 8 tokens", len(a.got), 2)
	c.wait(time.Second)
	same(t, "tasks a window later", len(a.got), 4)
}

func inPartition(e Event, partition string) Event {
	e.Partition = partition
	return e
}

// A task that waits for the limit of its partition delays no other of its kind, and goes first when the gate opens.
func TestGateOfAValueDelaysNoOtherValue(t *testing.T) {
	c, a := newClocked(t)
	limit := Limit{Name: "p", Kinds: map[ledger.Kind]int{testKind: 1}, Per: ledger.PerPartition, MaxRunning: 1}
	c.limits(limit)
	var events []Event
	for i := range 20 {
		events = append(events, inPartition(available(fmt.Sprint("t", i), i+1), "big"))
	}
	events = append(events, inPartition(available("s1", 30), "small"), available("none", 31))
	c.apply(events...)
	slices.Sort(a.got) // partitions take turns
	same(t, "tasks", a.got, []string{"none", "s1", "t0"})
	c.end(a, "t0")
	c.exchange()
	c.apply(inPartition(available("t0", 1), "big").as(Ended, 3, "a"), inPartition(available("t20", 40), "big"))
	same(t, "tasks after an end", a.got[3:], []string{"t1"})
	c.apply(inPartition(available("t2", 3), "big").as(Ended, 2, "operator")) // cancelled while it is parked
	c.end(a, "t1")
	c.exchange()
	c.apply(inPartition(available("t1", 2), "big").as(Ended, 3, "a"))
	same(t, "tasks after another end", a.got[3:], []string{"t1", "t3"})
	c.limits()
	same(t, "tasks without a limit", len(a.got), 22)
	same(t, "parked tasks", c.queues[testKind].parked, 0)
}

// Kinds that share a limit take turns.
func TestKindsOfALimitTakeTurns(t *testing.T) {
	s := newShop(100)
	w := NewWorker("1", "i")
	s.Join(Lease{Worker: "a", Session: "1", Capacity: 100, Kinds: map[ledger.Kind]ledger.ShardSet{
		testKind: ledger.AllShards, otherKind: ledger.AllShards}})
	got := map[ledger.Kind]int{}
	var last ledger.Key
	report := func() {
		w.Want(testKind, 10)
		w.Want(otherKind, 10)
		s.Receive(w.Report(0))
		s.Match()
		for _, o := range s.Offers() {
			taken, _ := w.Receive(o)
			for _, t := range taken {
				got[t.Key.Kind]++
				last = t.Key
			}
		}
	}
	report()
	report()
	s.begin()
	s.Limit([]Limit{{Name: "both", Kinds: map[ledger.Kind]int{testKind: 1, otherKind: 1}, MaxRunning: 1}})
	s.TakePermits(s.PermitReads()[0], InUse{}, false)
	events := tasksFrom(1, 20)
	for i := range 20 {
		events = append(events, ofKind(otherKind, fmt.Sprint("o", i), 60+i))
	}
	s.Apply(s.Open(), events)
	report()
	for range 9 {
		k := last
		w.End(k)
		s.Apply(s.Open(), []Event{{Change: Ended, Task: Task{Key: k, Version: 3}, Author: "a"}})
		report()
	}
	same(t, "tasks", got, map[ledger.Kind]int{testKind: 5, otherKind: 5})
}

// A kind whose tasks need several tokens of a rate has its turn, too, though a kind that needs one could use each token
// as soon as it is free. If no worker has the heavy kind, the light one does not wait for it.
func TestHeavyKindHasItsTurn(t *testing.T) {
	for _, hasWorker := range []bool{true, false} {
		t.Run(fmt.Sprint(hasWorker), func(t *testing.T) {
			s := newShop(100)
			w := NewWorker("1", "i")
			kinds := map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}
			if hasWorker {
				kinds[otherKind] = ledger.AllShards
			}
			s.Join(Lease{Worker: "a", Session: "1", Capacity: 100, Kinds: kinds})
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			got := map[ledger.Kind]int{}
			position := 1000
			report := func() {
				s.Tick(at)
				for k := range kinds {
					w.Want(k, 10)
				}
				s.Receive(w.Report(0))
				s.Match()
				for _, o := range s.Offers() {
					taken, _ := w.Receive(o)
					for _, task := range taken {
						got[task.Key.Kind]++
						position++
						e := ofKind(task.Key.Kind, string(task.Key.BizID), position).as(Begun, 2, "a")
						e.IsStart, e.RecordedAt = true, at
						w.End(task.Key)
						s.Apply(s.Open(), []Event{
							e, {Change: Ended, Task: Task{Key: task.Key, Version: 3}, Author: "a"}})
					}
				}
			}
			report()
			report()
			s.begin()
			s.Limit([]Limit{{Name: "both", Kinds: map[ledger.Kind]int{testKind: 1, otherKind: 3}, MaxRunning: -1,
				Burst: 3, Window: time.Second}})
			s.TakePermits(s.PermitReads()[0], InUse{At: at}, false)
			s.Apply(s.Open(), tasksFrom(1, 2))
			report()
			at = at.Add(300 * time.Millisecond)
			events := tasksFrom(3, 90)
			for i := range 5 {
				events = append(events, ofKind(otherKind, fmt.Sprint("o", i), 100+i))
			}
			s.Apply(s.Open(), events)
			for range 200 {
				report()
				at = at.Add(100 * time.Millisecond)
			}
			if heavy := got[otherKind]; hasWorker && heavy != 5 || !hasWorker && heavy != 0 {
				t.Errorf("%d tasks of weight 3 have started in 20 windows", heavy)
			}
			if light := got[testKind]; light < 30 {
				t.Errorf("%d tasks of weight 1 have started in 20 windows", light)
			}
		})
	}
}
