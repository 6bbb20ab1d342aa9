package dispatch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
)

// shop is a dispatcher with workers, between which messages arrive at once.
type shop struct {
	*Dispatcher

	workers map[string]*shopWorker // by session
}

type shopWorker struct {
	*Worker

	room int      // the number of tasks that it wants to hold
	got  []string // the tasks that it was given
}

func newShop(limit int) *shop { return &shop{New("i", 1, limit), map[string]*shopWorker{}} }

// join lets a worker in that wants to hold room tasks, and may hold capacity.
func (s *shop) join(worker, session string, room, capacity int, shards ledger.ShardSet) *shopWorker {
	w := &shopWorker{Worker: NewWorker(session, s.incarnation), room: room}
	s.workers[session] = w
	s.Join(Lease{Worker: worker, Session: session, Capacity: capacity,
		Kinds: map[ledger.Kind]ledger.ShardSet{testKind: shards}})
	s.exchange()
	return w
}

// exchange delivers messages until no more are sent.
func (s *shop) exchange() {
	for s.Match(); ; s.Match() {
		offers := s.Offers()
		if len(offers) == 0 {
			return
		}
		for _, o := range offers {
			w := s.workers[o.Session]
			if w == nil {
				continue
			}
			taken, _ := w.Receive(o)
			for _, t := range taken {
				w.got = append(w.got, string(t.Key.BizID))
			}
			s.report(w)
		}
	}
}

func (s *shop) report(w *shopWorker) {
	w.Want(testKind, max(0, w.room-len(w.held)))
	s.Receive(w.Report(0))
}

// end makes a worker no longer hold a task.
func (s *shop) end(w *shopWorker, id string) {
	w.End(available(id, 0).Key)
	s.report(w)
}

// begin makes the dispatcher active over an empty ledger.
func (s *shop) begin() {
	s.Activate(0)
	s.readNothing()
}

// readNothing answers each read with no tasks: windows deliver all of them.
func (s *shop) readNothing() {
	for _, r := range s.normalReads() {
		s.takeNormal(r.Kind, nil, 0, true)
	}
}

// apply applies a window with these events, and the consequences.
func (s *shop) apply(events ...Event) {
	s.Apply(s.Open(), events)
	s.exchange()
}

func available(id string, position int) Event {
	return Event{Change: Available, Task: Task{Key: ledger.Key{Kind: testKind, BizID: ledger.BizID(id)}, Version: 1,
		Position: ledger.Position(position)}}
}

func (e Event) as(change Change, version int, actor string) Event {
	e.Change, e.Version, e.Actor, e.Author = change, ledger.Version(version), actor, actor
	return e
}

func (e Event) in(shard ledger.Shard) Event {
	e.Shard = shard
	return e
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := difference.Of(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestTasksBeginInTheirOrderAndInEqualShares(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 10, 10, ledger.AllShards)
	b := s.join("b", "2", 2, 10, ledger.AllShards)
	s.begin()
	s.apply(available("t3", 3), available("t1", 1), available("t2", 2), available("t4", 4), available("t5", 5),
		available("t6", 6))
	same(t, "the worker with room for two", b.got, []string{"t1", "t2"})
	same(t, "the other one", a.got, []string{"t3", "t4", "t5", "t6"})
}

// A worker whose handlers were quick has much room, also when they have begun to hang.
func TestASingleTaskGoesToTheWorkerThatHoldsTheFewest(t *testing.T) {
	s := newShop(100)
	busy := s.join("busy", "1", 100, 100, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1), available("t2", 2))
	idle := s.join("idle", "2", 2, 10, 1<<0)
	s.apply(available("t3", 3))
	s.apply(available("t4", 4).in(1)) // which the idle one does not take
	same(t, "the idle one", idle.got, []string{"t3"})
	same(t, "the busy one", busy.got, []string{"t1", "t2", "t4"})
}

func TestSingleTasksGoToIdleWorkersInTurn(t *testing.T) {
	s := newShop(100)
	var workers []*shopWorker
	for _, name := range []string{"1", "2", "3"} {
		workers = append(workers, s.join(name, name, 10, 10, ledger.AllShards))
	}
	s.begin()
	for i := range 12 {
		id := fmt.Sprint("t", i)
		s.apply(available(id, i+1))
		s.apply(available(id, i+1).as(Ended, 2, ""))
		for _, w := range workers {
			s.end(w, id)
		}
	}
	for _, w := range workers {
		same(t, "tasks of each worker", len(w.got), 4)
	}
}

// A worker asks for many tasks, and then its handlers become slow.
func TestAWorkerTakesARequestBack(t *testing.T) {
	s := newShop(100)
	w := s.join("a", "1", 10, 10, ledger.AllShards)
	s.begin()
	asked := w.Report(1) // for ten
	w.Want(testKind, 0)
	s.Receive(w.Report(2))
	s.Receive(asked) // a late copy
	s.apply(available("t1", 1))
	same(t, "tasks that it gets", w.got, nil)
	w.Want(testKind, 1)
	s.Receive(w.Report(3))
	s.exchange()
	same(t, "tasks that it gets when it asks for one", w.got, []string{"t1"})
}

func TestAWorkerGetsItsShardsOnly(t *testing.T) {
	s := newShop(100)
	low := s.join("low", "1", 10, 10, 1<<0)
	high := s.join("high", "2", 10, 10, 1<<1)
	s.begin()
	s.apply(available("t1", 1).in(1), available("t2", 2), available("t3", 3).in(2), available("t4", 4).in(1))
	same(t, "shard 0", low.got, []string{"t2"})
	same(t, "shard 1", high.got, []string{"t1", "t4"})
	same(t, "a task without a worker is not in memory", s.tasks[available("t3", 0).Key] == nil, true)

	s.join("other", "3", 10, 10, 1<<2)
	reads := s.normalReads()
	same(t, "a worker for it", reads, []Read{{Kind: testKind, Priority: ledger.PriorityNormal, Limit: 50}})
	s.takeNormal(testKind, []Task{available("t2", 2).Task, available("t3", 3).in(2).Task}, 3, true)
	s.exchange()
	same(t, "the worker for it", s.workers["3"].got, []string{"t3"})
	same(t, "shard 0, again", low.got, []string{"t2"})
}

// Shards without a worker do not fill the memory of their kind: not at first, and not when their worker has left.
func TestShardsWithoutAWorkerTakeNoMemory(t *testing.T) {
	s := newShop(8)
	a := s.join("a", "1", 4, 4, 1<<0)
	gone := s.join("gone", "2", 2, 2, 1<<1)
	s.begin()
	for i := range 100 {
		s.apply(available(fmt.Sprint("other", i), 10+i).in(1), available(fmt.Sprint("third", i), 10+i).in(2))
	}
	same(t, "those of a worker", s.queues[testKind].size, 8)
	same(t, "it has", gone.got, []string{"other0", "other1"})
	s.Leave("gone")
	s.apply()
	same(t, "what it had, which it may have begun", len(s.tasks), 2)
	same(t, "memory of the kind", s.queues[testKind].size, 0)
	s.readNothing()
	s.apply(available("mine", 200))
	same(t, "another shard's task", a.got, []string{"mine"})
	s.Leave("a")
	s.apply(available("t", 201))
	same(t, "without a worker", len(s.tasks), 3) // tasks that the workers had
}

// A shard that a worker takes while the kind is being read is read from the beginning.
func TestAShardThatIsTakenDuringARead(t *testing.T) {
	s := newShop(100)
	s.join("a", "1", 1, 1, 1<<0)
	s.Activate(0)
	reads := s.normalReads()
	same(t, "reads", len(reads), 1)
	b := s.join("b", "2", 1, 1, 1<<1)
	s.takeNormal(testKind, nil, 50, true)
	same(t, "once more", s.normalReads(), []Read{{Kind: testKind, Priority: ledger.PriorityNormal, Limit: 50}})
	s.takeNormal(testKind, []Task{available("t1", 7).in(1).Task}, 50, true)
	s.exchange()
	same(t, "got", b.got, []string{"t1"})
}

// A kind whose last worker leaves during a read is forgotten, and read again for the next worker.
func TestAKindWithoutAWorkerIsForgotten(t *testing.T) {
	s := newShop(100)
	s.join("a", "1", 1, 1, ledger.AllShards)
	s.Activate(0)
	s.normalReads()
	s.Leave("a")
	same(t, "kinds", len(s.queues), 0)
	s.takeNormal(testKind, []Task{available("t1", 7).Task}, 7, true)
	same(t, "tasks", len(s.tasks), 0)
	b := s.join("b", "2", 1, 1, ledger.AllShards)
	same(t, "reads", s.normalReads(), []Read{{Kind: testKind, Priority: ledger.PriorityNormal, Limit: 50}})
	s.takeNormal(testKind, []Task{available("t1", 7).Task}, 7, true)
	s.exchange()
	same(t, "got", b.got, []string{"t1"})
}

// Many kinds share the memory.
func TestManyKindsShareTheMemory(t *testing.T) {
	const limit, kinds = 512, 1024
	s := newShop(limit)
	l := Lease{Worker: "a", Session: "1", Capacity: 1, Kinds: map[ledger.Kind]ledger.ShardSet{}}
	for i := range kinds {
		l.Kinds[ledger.Kind(fmt.Sprintf("kind.%d", i))] = ledger.AllShards
	}
	s.Join(l)
	s.begin()
	for i := range 10 {
		var all []Event
		for kind := range l.Kinds {
			e := available(fmt.Sprint(i), i+1)
			e.Key.Kind = kind
			all = append(all, e)
		}
		s.Apply(s.Open(), all)
	}
	same(t, "tasks in memory", len(s.tasks), 2*kinds) // one in 256 of the limit each
}

// A worker takes all that it may have and begins nothing. It loses that, and gets less each time, until it ends tasks.
func TestAWorkerThatDoesNothing(t *testing.T) {
	s := newShop(100)
	idle := s.join("idle", "1", 8, 8, ledger.AllShards)
	other := s.join("other", "2", 0, 100, ledger.AllShards)
	s.begin()
	for i := range 8 {
		s.apply(available(fmt.Sprintf("t%02d", i), i+1))
	}
	s.apply(available("t00", 1).as(Begun, 2, "idle"))
	s.Check("idle")
	s.apply()
	same(t, "before an interval has passed", s.sessions["1"].holds, 8)
	idle.room, other.room = 1000, 1000
	s.report(idle)
	s.report(other)
	s.Check("idle")
	s.apply()
	same(t, "its share", s.sessions["1"].holds, 4)
	same(t, "another worker", len(other.got), 4)
	same(t, "a task that was begun", s.tasks[available("t00", 1).Key].session.Session, "1")
	for _, x := range s.sessions["2"].numbers {
		same(t, "to be started with a record", x.task.IsAgain, true)
	}
	s.Check("idle")
	s.Check("idle")
	s.apply()
	same(t, "its share, less each time", s.sessions["1"].holds, 2)
	s.apply(available("t00", 1).as(Ended, 3, "idle"))
	same(t, "halvings, after it has ended a task", s.sessions["1"].idle, 1)
}

// A worker asks for more than it may hold.
func TestAGreedyWorkerHoldsItsCapacity(t *testing.T) {
	s := newShop(100)
	greedy := s.join("greedy", "1", 1_000_000, 2, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1), available("t2", 2), available("t3", 3))
	same(t, "the greedy worker", greedy.got, []string{"t1", "t2"})
	other := s.join("other", "2", 1, 1, ledger.AllShards)
	same(t, "the other one", other.got, []string{"t3"})
}

// A worker that stops keeps the tasks that it was given, and gets no more of those it asked for.
func TestAWorkerThatLeavesGetsNothing(t *testing.T) {
	s := newShop(100)
	leaving := s.join("leaving", "1", 10, 10, ledger.AllShards)
	other := s.join("other", "2", 1, 1, ledger.AllShards)
	s.begin()
	leaving.Leave()
	s.report(leaving)
	s.apply(available("t1", 1), available("t2", 2))
	same(t, "the worker that leaves", leaving.got, nil)
	same(t, "the other one", other.got, []string{"t1"})
}

// Kinds without ready tasks, and without tasks in the ledger alone, take no time.
func TestIdleKindsAreNotVisited(t *testing.T) {
	s := newShop(1000)
	s.join("a", "1", 1, 1, ledger.AllShards)
	kinds := map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}
	for i := range 1000 {
		kinds[ledger.Kind(fmt.Sprintf("idle.%d", i))] = ledger.AllShards
	}
	s.Join(Lease{Worker: "a", Session: "1", Capacity: 1, Kinds: kinds})
	s.begin()
	same(t, "spilled kinds", len(s.spilled), 0)
	s.apply(available("t1", 1), available("t2", 2), available("t3", 3), available("t4", 4))
	same(t, "busy kinds", len(s.busy), 1)
	same(t, "spilled kinds", len(s.spilled), 1)
}

// The dispatcher takes a hint ahead of its window, once, unless events were applied since it was read.
func TestHints(t *testing.T) {
	s := newShop(2)
	a := s.join("a", "1", 1, 10, ledger.AllShards)
	hint := func(applied int64, id string, position int) bool {
		isTaken := s.Hint(applied, []Task{available(id, position).Task})
		s.exchange()
		return isTaken
	}
	same(t, "before the ledger was read", hint(s.Applied(), "t0", 1), true)
	same(t, "a task that is read with the others", len(s.tasks), 0)
	s.begin()
	before := s.Applied()
	same(t, "ahead of the window", hint(before, "t1", 2), true)
	same(t, "the worker", a.got, []string{"t1"})
	same(t, "a second time", hint(before, "t1", 2), true)
	s.apply(available("t1", 2), available("t1", 3).as(Ended, 2, ""))
	same(t, "after a window", hint(before, "t1", 2), false)
	same(t, "a task that has ended", len(s.tasks), 0)
	s.end(a, "t1")
	same(t, "the worker gets nothing twice", a.got, []string{"t1"})
	s.apply(available("t2", 4), available("t3", 5), available("t4", 6), available("t5", 7)) // more than fit in memory
	same(t, "while others wait in the ledger", hint(s.Applied(), "t6", 8), true)
	same(t, "a task that is read in its turn", s.tasks[available("t6", 0).Key] == nil, true)
}

// A worker lists, in a new epoch, a task of another kind, and more tasks than it may hold.
func TestAWorkerHoldsNothingButItsOwn(t *testing.T) {
	s := newShop(100)
	s.Join(Lease{Worker: "a", Session: "1", Capacity: 1,
		Kinds: map[ledger.Kind]ledger.ShardSet{testKind: 1 << 0}})
	foreign := ledger.Key{Kind: "other", BizID: "x"}
	s.Receive(Report{Session: "1", Incarnation: "i", Epoch: 1, After: -3, Listed: []Holding{
		{Key: foreign, Version: 1, Number: -2},
		{Key: available("t1", 0).Key, Version: 1, Number: -1},
		{Key: available("t2", 0).Key, Version: 1, Number: 0},
	}, Held: []Range{{-2, 0}}})
	same(t, "the foreign task is unknown", s.tasks[foreign] == nil, true)
	same(t, "tasks that it holds", s.sessions["1"].holds, 1)
}

// A report without a live lease, of another epoch or of another database changes nothing.
func TestForeignReportsAreIgnored(t *testing.T) {
	s := newShop(100)
	w := s.join("a", "1", 1, 1, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1))
	for name, change := range map[string]func(*Report){
		"session":     func(r *Report) { r.Session = "unknown" },
		"epoch":       func(r *Report) { r.Epoch = 2 },
		"incarnation": func(r *Report) { r.Incarnation = "other" },
	} {
		r := w.Report(0)
		r.Held, r.Received, r.Asked = nil, 100, map[ledger.Kind]int64{testKind: 100}
		change(&r)
		s.Receive(r)
		same(t, name, s.tasks[available("t1", 0).Key].place, assigned)
	}
}

// The record of a start does not end the dispatcher's knowledge of a task.
func TestATaskThatWasBegunIsOfferedWhenItsWorkerIsGone(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 1, 1, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1))
	s.apply(available("t1", 1).as(Begun, 2, "a"))
	b := s.join("b", "2", 1, 1, ledger.AllShards)
	s.apply()
	same(t, "while its worker lives", b.got, nil)
	s.Leave("a")
	s.apply()
	same(t, "its worker", a.got, []string{"t1"})
	same(t, "the other one", b.got, []string{"t1"})
	held := s.tasks[available("t1", 0).Key].Task
	same(t, "version, actor and again", fmt.Sprintf("%d %s %t", held.Version, held.Actor, held.IsAgain), "2 a true")
}

// A database was restored: a task that its live worker has ended is running again. It is offered to that worker alone,
// which does not hold it, and to others once its lease has ended.
func TestARunningTaskThatItsWorkerDoesNotHoldIsOfferedToIt(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 1, 1, ledger.AllShards)
	b := s.join("b", "2", 2, 2, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1).as(Begun, 2, "a"))
	s.apply()
	same(t, "its worker", a.got, []string{"t1"})
	same(t, "the other one", b.got, nil)
	s.apply(available("t2", 3).as(Begun, 2, "a")) // it has no room for this task
	s.apply()
	same(t, "the other one, while the worker lives", b.got, nil)
	s.Leave("a")
	s.apply()
	slices.Sort(b.got)
	same(t, "the other one, afterwards", b.got, []string{"t1", "t2"})
}

// The worker was silent when the feed delivered that it has begun a task, and answers later without it.
func TestARunningTaskThatASilentWorkerDoesNotHoldIsOfferedToIt(t *testing.T) {
	for _, holds := range []bool{false, true} {
		s := newShop(100)
		a := &shopWorker{Worker: NewWorker("1", "i"), room: 1}
		if holds { // the offer of an earlier dispatcher
			a.Receive(Offer{Session: "1", Incarnation: "i", Number: 1, Tasks: []Task{available("t1", 1).Task}})
		}
		s.workers["1"] = a
		s.Join(Lease{Worker: "a", Session: "1", Capacity: 1,
			Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
		s.Offers() // lost
		s.begin()
		s.apply(available("t1", 1).as(Begun, 2, "a"))
		s.Probe()
		s.exchange()
		s.apply()
		s.apply()
		if holds {
			same(t, "offered to its holder", a.got, nil)
			same(t, "held", s.sessions["1"].holds, 1)
		} else {
			same(t, "offered", a.got, []string{"t1"})
		}
	}
}

// A worker's lease ends and lives again. Its numbers and sums continue, and it keeps its tasks.
func TestAWorkerWhoseLeaseLivesAgain(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 2, 10, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1), available("t2", 2))
	s.end(a, "t1")
	l := s.sessions["1"].Lease
	s.Leave("a")
	s.Join(l)
	s.readNothing()
	s.exchange()
	s.apply(available("t1", 1).as(Ended, 2, "a"), available("t2", 2).as(Begun, 2, "a"), available("t3", 3))
	s.apply()
	same(t, "offered", a.got, []string{"t1", "t2", "t3"})
	same(t, "known to be held", s.sessions["1"].holds, 1) // t2 waits for room in it
	s.apply(available("t4", 4))
	same(t, "while it has no room", a.got, []string{"t1", "t2", "t3"})
	s.end(a, "t3")
	s.apply(available("t3", 3).as(Ended, 2, "a"))
	same(t, "known to be held, with room", s.sessions["1"].holds, 2)
	s.apply(available("t2", 2).as(Ended, 3, "a"))
	s.end(a, "t2")
	same(t, "afterwards", a.got, []string{"t1", "t2", "t3", "t4"})
	same(t, "messages left", len(s.Offers()), 0)
}

// A worker that claims its tasks itself has no session. Its tasks wait for the end of its lease.
func TestATaskOfAWorkerInSQLWaitsForItsLease(t *testing.T) {
	s := newShop(100)
	b := s.join("b", "2", 1, 1, ledger.AllShards)
	s.Join(Lease{Worker: "sql", Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	s.begin()
	s.apply(available("t1", 1).as(Begun, 2, "sql"))
	s.apply()
	same(t, "while the lease lives", b.got, nil)
	s.Leave("sql")
	s.apply()
	same(t, "afterwards", b.got, []string{"t1"})
}

// A process that restarts under its name begins with numbers of zero, and its former tasks are offered again.
func TestAnotherSessionOfAWorkerStartsAnew(t *testing.T) {
	s := newShop(100)
	s.join("a", "1", 2, 2, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1), available("t2", 2))
	again := s.join("a", "2", 2, 2, ledger.AllShards)
	s.apply()
	slices.Sort(again.got)
	same(t, "the new session", again.got, []string{"t1", "t2"})
}

// A worker ends a task without an event: its args do not decode, its append is refused, or it stops.
func TestATaskThatIsGivenBackBeginsElsewhere(t *testing.T) {
	s := newShop(100)
	a := s.join("a", "1", 1, 1, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1))
	a.room = 0
	s.end(a, "t1")
	b := s.join("b", "2", 1, 1, ledger.AllShards)
	same(t, "before a later window", b.got, nil)
	s.apply()
	same(t, "after it", b.got, []string{"t1"})
}

// The database was restored: its epochs are lower than those that the worker knows.
func TestEpochsOfAnotherDatabaseStartAnew(t *testing.T) {
	w := NewWorker("1", "before")
	w.Receive(Offer{Session: "1", Incarnation: "before", Epoch: 7})
	restored := Offer{Session: "1", Incarnation: "restored", Epoch: 2, Number: 1,
		Tasks: []Task{available("t1", 1).Task}}
	if taken, _ := w.Receive(restored); len(taken) > 0 {
		t.Error("an offer of a database that the worker has not reached was accepted")
	}
	w.Reach("restored")
	if taken, _ := w.Receive(restored); len(taken) != 1 {
		t.Errorf("took %v", taken)
	}
}

// A kind has more waiting tasks than the memory: they are read in steps, and all begin in their order.
func TestMoreTasksThanTheMemoryHolds(t *testing.T) {
	const tasks, limit = 1000, 16
	s := newShop(limit)
	w := s.join("a", "1", 1, 1, ledger.AllShards)
	var all []Event
	var want []string
	for i := range tasks {
		id := fmt.Sprintf("t%04d", i)
		all, want = append(all, available(id, i+1)), append(want, id)
	}
	s.begin()
	s.Apply(s.Open(), all)
	for n := 0; n < tasks; n++ {
		for _, r := range s.normalReads() {
			from := min(len(all), int(r.After))
			page := all[from:min(len(all), from+r.Limit)]
			var rows []Task
			for _, e := range page {
				rows = append(rows, e.Task)
			}
			s.takeNormal(r.Kind, rows, ledger.Position(from+len(page)), len(rows) < r.Limit)
		}
		if ready := s.queues[testKind].size; ready > limit+limit/2 {
			t.Fatalf("%d tasks in memory", ready)
		}
		s.exchange()
		if len(w.got) != n+1 {
			t.Fatalf("%d tasks begun, want %d", len(w.got), n+1)
		}
		s.apply(all[n].as(Ended, 2, ""))
		s.end(w, want[n])
	}
	same(t, "order", w.got, want)
	same(t, "tasks left in memory", len(s.tasks), 0)
}

func FuzzReport(f *testing.F) {
	f.Add(int64(1), int64(5), int64(-3), int64(0), int64(100))
	f.Fuzz(func(t *testing.T, first, last, after, through, asked int64) {
		s := newShop(10)
		w := s.join("a", "1", 2, 2, ledger.AllShards)
		s.begin()
		s.apply(available("t1", 1), available("t2", 2), available("t3", 3))
		r := w.Report(0)
		r.Held, r.Received = []Range{{first, last}}, last
		r.After, r.Through = after, through
		r.Asked = map[ledger.Kind]int64{testKind: asked}
		s.Receive(r)
		s.apply()
		if n := s.sessions["1"].holds; n > 2 {
			t.Errorf("the session holds %d tasks", n)
		}
	})
}

// A worker lists a task of a kind that a new dispatcher has not read. The task fails, and its timer releases it.
func TestAnAdoptedTaskThatIsReleasedIsOffered(t *testing.T) {
	s := newShop(100)
	a := NewWorker("1", "i")
	a.Receive(Offer{Session: "1", Incarnation: "i", Epoch: 1, Number: 1, Tasks: []Task{available("t1", 1).Task}})
	s.Dispatcher = New("i", 2, 100)
	s.workers["1"] = &shopWorker{Worker: a, room: 1}
	s.Join(Lease{Worker: "a", Session: "1", Capacity: 1,
		Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	s.exchange()
	same(t, "adopted", s.sessions["1"].holds, 1)
	s.begin()
	s.apply(available("t1", 1).as(Ended, 3, "")) // retrying
	s.end(s.workers["1"], "t1")
	s.apply(available("t1", 9).as(Available, 4, ""))
	same(t, "offered again", s.workers["1"].got, []string{"t1"})
}

// A task that kills its worker before its start is recorded is offered so that the next one records it first: each
// start is counted.
func TestATaskWhoseWorkerIsGoneIsStartedWithARecord(t *testing.T) {
	s := newShop(100)
	s.join("a", "1", 1, 1, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1))
	isAgain := func() bool { return s.tasks[available("t1", 0).Key].IsAgain }
	same(t, "at first", isAgain(), false)
	s.Leave("a")
	s.join("b", "2", 1, 1, ledger.AllShards)
	s.apply()
	same(t, "afterwards", isAgain(), true)
}

// Two processes run under one name, and report by turns: the process with the lease row gets the tasks.
func TestTwoProcessesOfOneName(t *testing.T) {
	s := newShop(100)
	old := s.join("a", "1", 1, 1, ledger.AllShards)
	s.begin()
	s.join("a", "2", 1, 1, ledger.AllShards)
	for i := range 3 {
		s.report(old)
		s.apply(available(fmt.Sprint(i), i+1))
		s.report(old)
		s.end(s.workers["2"], fmt.Sprint(i))
		s.apply(available(fmt.Sprint(i), i+1).as(Ended, 2, ""))
	}
	same(t, "the old one", old.got, nil)
	same(t, "the one with the lease", s.workers["2"].got, []string{"0", "1", "2"})
}

// A lease counts for the kinds in its detail only. A worker that claims in SQL begins a task, is started again without
// the kind under its name, and lives on.
func TestALeaseWithoutTheKindHoldsNoTask(t *testing.T) {
	s := newShop(100)
	b := s.join("b", "2", 2, 2, ledger.AllShards)
	s.Join(Lease{Worker: "sql", Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	s.begin()
	s.apply(available("t1", 1).as(Begun, 2, "sql"))
	s.apply()
	same(t, "while the lease contains the kind", b.got, nil)
	s.Join(Lease{Worker: "sql", Kinds: map[ledger.Kind]ledger.ShardSet{otherKind: ledger.AllShards}})
	s.apply()
	same(t, "afterwards", b.got, []string{"t1"})
	s.apply(available("t2", 3).as(Begun, 2, "sql"))
	s.apply()
	same(t, "a start from before, which a window delivers late", b.got, []string{"t1", "t2"})
}

// Kinds that join one after the other share the memory.
func TestKindsThatJoinLaterShareTheMemory(t *testing.T) {
	const limit = 1024
	s := newShop(limit)
	s.Activate(0)
	for i := range 512 {
		kind := ledger.Kind(fmt.Sprint("k", i))
		s.Join(Lease{Worker: fmt.Sprint(i), Session: fmt.Sprint(i), Kinds: map[ledger.Kind]ledger.ShardSet{kind: 1}})
		for range 10 {
			for _, r := range s.normalReads() {
				var rows []Task
				for n := range r.Limit {
					e := available(fmt.Sprint(int(r.After)+n+1), int(r.After)+n+1)
					e.Key.Kind = r.Kind
					rows = append(rows, e.Task)
				}
				s.takeNormal(r.Kind, rows, r.After+ledger.Position(r.Limit), false)
			}
		}
	}
	if n := len(s.tasks); n > 2*limit+512*limit/256 {
		t.Errorf("%d tasks in memory", n)
	}
}

// Tasks arrive evenly, some during each read of the ledger. The reads end nevertheless, and the tasks arrive by
// windows.
func TestReadsEndWhileTasksArrive(t *testing.T) {
	s := newShop(16)
	w := s.join("a", "1", 10_000, 10_000, ledger.AllShards)
	s.Activate(0)
	var all []Event
	next := func() Event {
		all = append(all, available(fmt.Sprint("t", len(all)), len(all)+1))
		return all[len(all)-1]
	}
	for range 100 {
		s.apply(next())
	}
	reads := 0
	for range 1000 {
		for _, r := range s.normalReads() {
			reads++
			page := all[min(len(all), int(r.After)):]
			isEnd := len(page) < r.Limit
			page = page[:min(len(page), r.Limit)]
			var rows []Task
			through := r.After
			for _, e := range page {
				rows, through = append(rows, e.Task), e.Position
			}
			s.Apply(s.Open(), []Event{next()})
			s.takeNormal(r.Kind, rows, through, isEnd)
		}
		s.apply(next())
	}
	same(t, "tasks begun", len(w.got), len(all))
	if reads > 50 {
		t.Errorf("%d reads", reads)
	}
}

// More tasks arrive during a read than fit in memory.
func TestTasksThatArriveDuringAReadAreBounded(t *testing.T) {
	s := newShop(16)
	w := s.join("a", "1", 1000, 1000, ledger.AllShards)
	s.Activate(0)
	reads := s.normalReads()
	var all []Event
	for i := range 100 {
		all = append(all, available(fmt.Sprint("t", i), i+1))
	}
	s.Apply(s.Open(), all)
	if n := len(s.queues[testKind].normal().plain.late); n > 8 {
		t.Errorf("%d tasks in memory during the read", n)
	}
	s.takeNormal(testKind, nil, reads[0].After, true)
	for range 100 {
		for _, r := range s.normalReads() {
			page := all[int(r.After):min(len(all), int(r.After)+r.Limit)]
			var rows []Task
			for _, e := range page {
				rows = append(rows, e.Task)
			}
			s.takeNormal(r.Kind, rows, r.After+ledger.Position(len(page)), len(page) < r.Limit)
		}
		s.exchange()
	}
	same(t, "tasks begun", len(w.got), 100)
}

// Many tasks wait for one worker: those that it has begun and does not hold, and those of a shard that no other worker
// takes, which its death has left. The kind's other tasks are read, and begin.
func TestTasksThatWaitForOneWorkerDelayNoOther(t *testing.T) {
	const limit = 8
	for name, left := range map[string]func(*shop, *shopWorker, Event){
		"begun": func(s *shop, one *shopWorker, e Event) { s.apply(e.as(Begun, 2, "one")) },
		"left":  func(*shop, *shopWorker, Event) {},
	} {
		s := newShop(limit)
		one := s.join("one", "1", 100, 100, 1<<1)
		other := s.join("other", "2", 1, 1, 1<<0)
		s.begin()
		for i := range 4 * limit {
			s.apply(available(fmt.Sprint(i), i+1).in(1))
		}
		same(t, name+": it holds", len(one.got), 4*limit)
		one.room = 0
		for i, id := range one.got {
			e := available(id, i+1).in(1)
			left(s, one, e)
			if name == "begun" {
				s.end(one, id)
			}
		}
		if name == "left" {
			s.Leave("one")
		}
		s.apply()
		var want []string
		for i := range 4 * limit {
			id := fmt.Sprint("t", i)
			want = append(want, id)
			s.apply(available(id, 1000+i))
		}
		for range want {
			for _, r := range s.normalReads() {
				from := max(0, int(r.After)-999)
				var rows []Task
				for i := from; i < min(len(want), from+r.Limit); i++ {
					rows = append(rows, available(want[i], 1000+i).Task)
				}
				s.takeNormal(r.Kind, rows, ledger.Position(999+from+len(rows)), len(rows) < r.Limit)
			}
			s.exchange()
			last := other.got[len(other.got)-1]
			s.apply(available(last, 0).as(Ended, 2, "other"))
			s.end(other, last)
		}
		same(t, name+": the other one", other.got, want)
	}
}
