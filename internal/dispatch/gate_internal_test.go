package dispatch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// limit sets the limit of the test's kind, and answers the reads of permits.
func (s *shop) limit(n int, permits ...Permit) {
	s.Limit(limitOf(n))
	for _, name := range s.PermitReads() {
		s.TakePermits(name, InUse{Permits: permits}, false)
	}
	s.exchange()
}

// limitOf returns the limit of the test's kind.
func limitOf(n int) []Limit {
	return []Limit{{Name: "one", Kinds: map[ledger.Kind]int{testKind: 1}, MaxRunning: n}}
}

func permitOf(id string, version ledger.Version) Permit {
	return Permit{Key: available(id, 0).Key, Version: version}
}

// tasksFrom returns available tasks t<from> to t<through>.
func tasksFrom(from, through int) (events []Event) {
	for i := from; i <= through; i++ {
		events = append(events, available(fmt.Sprint("t", i), i))
	}
	return events
}

// A kind with a limit has as many tasks on their way or running as the limit allows. The workers share them.
func TestGateHoldsTasksBack(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 10, 10, ledger.AllShards)
	b := s.join("b", "2", 10, 10, ledger.AllShards)
	s.begin()
	s.limit(4)
	s.apply(tasksFrom(1, 9)...)
	same(t, "tasks of a", a.got, []string{"t1", "t2"})
	same(t, "tasks of b", b.got, []string{"t3", "t4"})
	s.apply(available("t1", 1).as(Begun, 2, "a"), available("t3", 3).as(Begun, 2, "b"))
	same(t, "tasks after two starts", len(a.got)+len(b.got), 4)
	s.end(a, "t1") // before the feed delivers its end
	s.exchange()
	same(t, "tasks after an end that the worker has reported", len(a.got)+len(b.got), 5)
	s.apply(available("t1", 1).as(Ended, 3, "a"))
	same(t, "tasks after the feed has delivered the end", len(a.got)+len(b.got), 5)
	s.end(b, "t4") // given back without a start
	s.exchange()
	same(t, "tasks after one was given back", len(a.got)+len(b.got), 6)
	s.limit(5)
	same(t, "tasks after the limit was raised", len(a.got)+len(b.got), 7)
	s.limit(1)
	s.apply(available("t3", 3).as(Ended, 3, "b"))
	same(t, "tasks after the limit was lowered", len(a.got)+len(b.got), 7)
	s.Limit(nil)
	s.exchange()
	same(t, "tasks without a limit", len(a.got)+len(b.got) >= 10, true)
	same(t, "gates", len(s.limits), 0)
}

// A worker's report of an end frees a permit. If the feed delivers the start later, or the outcome was not recorded,
// the ledger decides.
func TestGateFreesThePermitOfAReportedEnd(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 10, 10, ledger.AllShards)
	s.begin()
	s.limit(2)
	s.apply(tasksFrom(1, 9)...)
	same(t, "tasks", a.got, []string{"t1", "t2"})
	s.end(a, "t1") // the feed has delivered neither start nor end
	s.exchange()
	same(t, "tasks after an end", a.got, []string{"t1", "t2", "t3"})
	s.apply(available("t1", 1).as(Begun, 2, "a"))
	s.end(a, "t2")
	s.exchange()
	same(t, "tasks after the start of an ended task", a.got, []string{"t1", "t2", "t3", "t4"})
	s.apply(available("t1", 1).as(Ended, 3, "a"), available("t2", 2).as(Ended, 3, "a"))
	same(t, "tasks after the ends", a.got, []string{"t1", "t2", "t3", "t4"})

	s.apply(available("t3", 3).as(Begun, 2, "a"), available("t4", 4).as(Begun, 2, "a"))
	s.end(a, "t3") // its outcome is not recorded: no event follows
	s.exchange()
	same(t, "tasks after a third end", a.got, []string{"t1", "t2", "t3", "t4", "t5"})
	s.apply()
	s.exchange()
	same(t, "tasks after an end without an outcome", a.got, []string{"t1", "t2", "t3", "t4", "t5", "t3"})
	s.end(a, "t5")
	s.exchange()
	same(t, "the task holds its permit", a.got, []string{"t1", "t2", "t3", "t4", "t5", "t3"})
}

// Until the permits are read, no task is offered. Then tasks that workers in SQL run count.
func TestGateIsClosedUntilThePermitsAreRead(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 10, 10, ledger.AllShards)
	s.begin()
	s.Limit(limitOf(3))
	s.apply(tasksFrom(1, 9)...)
	same(t, "tasks before the read", len(a.got), 0)
	reads := s.PermitReads()
	same(t, "reads", reads, []string{"one"})
	same(t, "reads at the same time", len(s.PermitReads()), 0)
	s.apply(available("x1", 100).as(Ended, 3, "sql"), available("x3", 102).as(Begun, 2, "sql"))
	s.TakePermits("one", InUse{Permits: []Permit{permitOf("x1", 2), permitOf("x2", 2)}}, false)
	s.exchange()
	same(t, "tasks next to two that run", a.got, []string{"t1"})
	s.TakePermits("one", InUse{}, false) // without a request
	s.exchange()
	same(t, "tasks after an answer without a request", len(a.got), 1)
	s.RereadPermits()
	s.PermitReads()
	s.TakePermits("one", InUse{}, true)
	same(t, "reads after one has failed", s.PermitReads(), []string{"one"})
	s.TakePermits("one", InUse{}, false) // x2 and x3 have ended, and the feed was not there
	s.exchange()
	same(t, "tasks after the permits were read again", len(a.got), 3)
}

// While starts are refused although no permit is known to be in use, few tasks are offered. The end of an unknown start
// opens the gate.
func TestGateAfterRefusedStarts(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 10, 10, ledger.AllShards)
	s.begin()
	s.limit(4)
	s.apply(tasksFrom(1, 9)...)
	for range 2 { // until a window shows that the first have not started, others are tried
		for _, id := range slices.Clone(a.got)[len(a.got)-4:] {
			s.end(a, id)
		}
		s.exchange()
		s.apply()
	}
	same(t, "tasks after eight starts were refused", len(a.got), 8)
	s.apply(available("x1", 100).as(Ended, 3, "caller"))
	same(t, "tasks after an unknown start has ended", len(a.got), 9)
	s.Retry()
	s.exchange()
	same(t, "tasks after a retry", len(a.got), 11)
	s.Retry()
	s.exchange()
	same(t, "tasks after another retry", len(a.got), 12)
}

// A quick task has ended before the feed delivers its start. Its permit is used again at once.
func TestGateAfterQuickTasks(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 10, 10, ledger.AllShards)
	s.begin()
	s.limit(1)
	s.apply(tasksFrom(1, 9)...)
	for i, e := range []Event{
		available("t1", 1).as(Ended, 3, "a"), available("t2", 2).as(Begun, 2, "a"),
		available("t3", 3).as(Available, 4, "a"),
	} {
		s.end(a, string(e.Key.BizID))
		s.exchange()
		same(t, "tasks after an end", len(a.got), i+2)
		s.apply(e)
		if e.Change == Begun {
			s.apply(available("t2", 2).as(Ended, 3, "a"))
		}
		same(t, "permits that are not used", s.limits["one"].gates[""].returned, 0)
	}
}

// The task of a worker that is gone keeps its permit: it is offered first, even while the gate is closed.
func TestTaskWithAPermitPassesAClosedGate(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 1, 10, ledger.AllShards)
	s.begin()
	s.limit(1)
	s.apply(tasksFrom(5, 9)...)
	same(t, "tasks of a", a.got, []string{"t5"})
	s.apply(available("t5", 5).as(Begun, 2, "a"))
	b := s.join("b", "2", 10, 10, ledger.AllShards)
	same(t, "tasks of b", len(b.got), 0)
	s.Leave("a")
	s.apply()
	same(t, "tasks of b after a is gone", b.got, []string{"t5"})
	same(t, "uses", len(s.limits["one"].uses), 1)
	s.apply(available("t5", 5).as(Begun, 3, "b"))
	same(t, "tasks of b after the take-over", len(b.got), 1)
	s.apply(available("t5", 5).as(Ended, 4, "b"))
	same(t, "tasks of b after its end", b.got, []string{"t5", "t6"})
}

// A new dispatcher reads tasks before it knows their permits.
func TestPermitsOfReadyTasksAreReadLater(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 10, 10, ledger.AllShards)
	s.Activate(0)
	s.Limit(limitOf(1))
	lost := available("t7", 7).as(Begun, 2, "gone").Task
	for _, r := range s.Reads() {
		var tasks []Task
		if r.Priority == lost.Priority.Level() {
			tasks = []Task{available("t1", 1).Task, lost}
		}
		s.TakeRead(r, tasks, 7, true)
	}
	s.exchange()
	same(t, "tasks before the permits are known", len(a.got), 0)
	for _, kind := range s.PermitReads() {
		s.TakePermits(kind, InUse{Permits: []Permit{permitOf("t7", 2)}}, false)
	}
	s.exchange()
	same(t, "tasks", a.got, []string{"t7"})
}

// A closed gate of one kind delays no other.
func TestGateDelaysNoOtherKind(t *testing.T) {
	s := newShop(100)
	w := NewWorker("1", "i")
	s.Join(Lease{Worker: "a", Session: "1", Capacity: 100, Kinds: map[ledger.Kind]ledger.ShardSet{
		testKind: ledger.AllShards, otherKind: ledger.AllShards}})
	got := map[ledger.Kind]int{}
	report := func() {
		w.Want(testKind, 10)
		w.Want(otherKind, 10)
		s.Receive(w.Report(0))
		s.Match()
		for _, o := range s.Offers() {
			taken, _ := w.Receive(o)
			for _, t := range taken {
				got[t.Key.Kind]++
			}
		}
	}
	report()
	report()
	s.begin()
	s.Limit(limitOf(0))
	for _, kind := range s.PermitReads() {
		s.TakePermits(kind, InUse{}, false)
	}
	s.Apply(s.Open(), append(tasksFrom(1, 50), ofKind(otherKind, "o1", 60), ofKind(otherKind, "o2", 61)))
	report()
	report()
	same(t, "tasks", got, map[ledger.Kind]int{otherKind: 2})
}
