package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// normal returns the level of tasks without a priority.
func (q *queue) normal() *level { return &q.levels[ledger.PriorityNormal-1] }

// normalReads returns the reads of tasks without a priority, whose partitions are these. The ledger has no others.
func (d *Dispatcher) normalReads(partitions ...string) (reads []Read) {
	searches, reads := d.normalRequests()
	for _, s := range searches {
		d.TakeSearch(s, Found{Listed: partitions, IsEnd: true, IsWhole: true}, false)
	}
	_, found := d.normalRequests()
	return append(reads, found...)
}

// takeNormal takes the answer to a read of tasks without a priority and a partition.
func (d *Dispatcher) takeNormal(kind ledger.Kind, tasks []Task, through ledger.Position, isEnd bool) {
	d.TakeRead(Read{Kind: kind, Priority: ledger.PriorityNormal}, tasks, through, isEnd)
}

// normalRequests returns the requests for tasks without a priority. The ledger has no others.
func (d *Dispatcher) normalRequests() (searches []Search, reads []Read) {
	for _, s := range d.Searches() {
		if s.Priority == ledger.PriorityNormal {
			searches = append(searches, s)
		} else {
			d.TakeSearch(s, Found{IsEnd: true, IsWhole: true}, false)
		}
	}
	for _, r := range d.Reads() {
		if r.Priority == ledger.PriorityNormal {
			reads = append(reads, r)
		} else {
			d.TakeRead(r, nil, 0, true)
		}
	}
	return searches, reads
}

func (e Event) with(p ledger.Priority) Event {
	e.Priority = p
	return e
}

// One by one, the oldest task of the highest priority is offered.
func TestTasksBeginByPriority(t *testing.T) {
	s := newShop(100)
	w := s.join("a", "1", 0, 10, ledger.AllShards)
	s.begin()
	s.apply(available("low", 1).with(ledger.PriorityLow), available("normal", 2).in(1),
		available("normal-too", 3).with(ledger.PriorityNormal),
		available("urgent", 4).with(ledger.PriorityUrgent).in(7), available("high", 5).with(ledger.PriorityHigh),
		available("urgent-too", 6).with(ledger.PriorityUrgent))
	w.room = 1
	for range 6 {
		s.report(w)
		s.exchange()
		last := w.got[len(w.got)-1]
		s.apply(available(last, 0).as(Ended, 2, "a"))
		s.end(w, last)
	}
	same(t, "order", w.got, []string{"urgent", "urgent-too", "high", "normal", "normal-too", "low"})
}

// While tasks of several priorities wait, each 16th offer is the oldest task. So a task begins after at most 16 times
// as many offers as tasks waited before it, whatever arrives meanwhile. Workers of other shards do not take its turns.
func TestNoPriorityStarves(t *testing.T) {
	s := newShop(1000)
	w := s.join("a", "1", 0, 1000, 1<<0)
	other := s.join("b", "2", 0, 1000, 1<<1)
	s.begin()
	position := 0
	arrive := func(p ledger.Priority, shard ledger.Shard) {
		position++
		id := fmt.Sprintf("%d-%d", p, position)
		s.apply(available(id, position).with(p).in(shard))
	}
	for range 5 {
		arrive(ledger.PriorityLow, 0)
		arrive(ledger.PriorityLow, 1)
	}
	for range 20 {
		arrive(ledger.PriorityUrgent, 0)
		arrive(ledger.PriorityUrgent, 1)
	}
	for range 5 * share {
		for _, one := range []*shopWorker{w, other} {
			one.room++
			s.report(one)
			s.exchange()
		}
		arrive(ledger.PriorityUrgent, 0)
		arrive(ledger.PriorityUrgent, 1)
	}
	for name, one := range map[string]*shopWorker{"a": w, "b": other} {
		same(t, name+": tasks", len(one.got), 5*share)
		for i, id := range one.got {
			isLow := strings.HasPrefix(id, "4-")
			if isLow != ((i+1)%share == 0) {
				t.Errorf("%s: offer %d is task %s", name, i+1, id)
			}
		}
	}
}

// Many low tasks wait, more than fit into memory, in the ledger and then also by windows. An urgent one is offered
// next, from a window as from the ledger after a restart.
func TestAnUrgentTaskOvertakesASpilledPriority(t *testing.T) {
	const limit, low = 16, 1000
	ledgerOf := func(p ledger.Priority, after ledger.Position, n int) (rows []Task) {
		for i := int(after) + 1; i <= low && len(rows) < n && p == ledger.PriorityLow; i++ {
			rows = append(rows, available(fmt.Sprint("low", i), i).with(p).Task)
		}
		if p == ledger.PriorityUrgent && after < low+1 {
			rows = append(rows, available("urgent", low+1).with(p).Task)
		}
		return rows
	}
	read := func(s *shop) {
		for _, r := range s.Searches() {
			s.TakeSearch(r, Found{IsEnd: true, IsWhole: true}, false)
		}
		for _, r := range s.Reads() {
			rows := ledgerOf(r.Priority, r.After, r.Limit)
			s.TakeRead(r, rows, max(r.After, last(rows)), len(rows) < r.Limit)
		}
		s.exchange()
	}
	for name, deliver := range map[string]func(*shop){
		"from the ledger": read,
		"by windows": func(s *shop) {
			s.readNothing()
			for _, p := range []ledger.Priority{ledger.PriorityLow, ledger.PriorityUrgent} {
				for _, task := range ledgerOf(p, 0, low) {
					s.apply(Event{Task: task, Change: Available})
				}
			}
		},
	} {
		s := newShop(limit)
		w := s.join("a", "1", 0, 2*low, ledger.AllShards)
		s.Activate(0)
		deliver(s)
		if n := len(s.tasks); n > limit+1 {
			t.Errorf("%s: %d tasks in memory", name, n)
		}
		w.room = 3
		s.report(w)
		s.exchange()
		same(t, name, w.got, []string{"urgent", "low1", "low2"})
		w.room = 2 * low
		s.report(w)
		for range low {
			read(s)
		}
		same(t, name+": tasks begun", len(w.got), low+1)
		for i, id := range w.got[1:] {
			if id != fmt.Sprint("low", i+1) {
				t.Fatalf("%s: task %d is %s", name, i+1, id)
			}
		}
	}
}

// A task gets another priority while both priorities are read. It is in the memory once, at its new priority.
func TestAPriorityChangesDuringARead(t *testing.T) {
	s := newShop(100)
	w := s.join("a", "1", 0, 10, ledger.AllShards)
	s.Activate(0)
	for _, r := range s.Searches() {
		s.TakeSearch(r, Found{IsEnd: true, IsWhole: true}, false)
	}
	reads := s.Reads()
	same(t, "reads", len(reads), levels)
	moved := available("moved", 9).with(ledger.PriorityUrgent)
	moved.Version = 3
	s.Apply(s.Open(), []Event{available("moved", 0).as(Ended, 2, "operator"), moved})
	for _, r := range reads {
		var rows []Task
		if r.Priority == ledger.PriorityNormal {
			rows = []Task{available("moved", 1).Task, available("normal", 2).Task}
		}
		s.TakeRead(r, rows, last(rows), true)
	}
	w.room = 10
	s.report(w)
	s.exchange()
	same(t, "order", w.got, []string{"moved", "normal"})
	same(t, "version", s.tasks[moved.Key].Version, 3)
}

// BenchmarkDrain offers the tasks of a backlog, to a worker that ends them.
func BenchmarkDrain(b *testing.B) {
	const backlog = 32_768
	for _, bench := range []struct {
		name                   string
		priorities, partitions int
	}{
		{name: "plain"}, {name: "four priorities", priorities: levels}, {name: "1000 partitions", partitions: 1000},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := newShop(2 * backlog)
				w := s.join("a", "1", 0, backlog, ledger.AllShards)
				s.begin()
				events := make([]Event, backlog)
				for i := range events {
					events[i] = available(fmt.Sprint("t", i), i+1).in(ledger.Shard(i % ledger.Shards))
					if bench.priorities > 0 {
						events[i].Priority = ledger.Priority(1 + i%bench.priorities)
					}
					if bench.partitions > 0 {
						events[i].Partition = fmt.Sprint(i % bench.partitions)
					}
				}
				s.Apply(s.Open(), events)
				b.StartTimer()
				for len(w.got) < backlog {
					w.room += 1000
					s.report(w)
					s.exchange()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/backlog, "ns/task")
		})
	}
}
