package dispatch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

const otherKind ledger.Kind = "other"

// Leases of two workers never have the same session name.
func TestSessionNamesOfTwoWorkersDiffer(t *testing.T) {
	public := []byte("0123456789abcdef0123456789abcdef")
	victim := SessionName("mail-abcdefgh", public)
	hostile := SessionName("mail-abcdefg", append([]byte("h"), public...))
	if victim == hostile {
		t.Errorf("another worker's session has the same name: %s", victim)
	}
}

// joinHolding lets a worker in that holds tasks of an earlier epoch.
func (s *shop) joinHolding(worker, session string, held ...Holding) *shopWorker {
	w := &shopWorker{Worker: NewWorker(session, s.incarnation), room: 1}
	for _, h := range held {
		w.held[h.Key] = &h
	}
	s.workers[session] = w
	s.Join(Lease{Worker: worker, Session: session, Capacity: 10_000,
		Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	return w
}

func ofKind(kind ledger.Kind, id string, position int) Event {
	e := available(id, position)
	e.Key.Kind = kind
	return e
}

// An offer is lost, and one of another kind arrives.
func TestALostOfferIsRepeatedThoughOneOfAnotherKindArrives(t *testing.T) {
	d := New("i", 1, 100)
	w := NewWorker("1", "i")
	d.Join(Lease{Worker: "a", Session: "1", Capacity: 10, Kinds: map[ledger.Kind]ledger.ShardSet{
		testKind: ledger.AllShards, otherKind: ledger.AllShards}})
	held := map[ledger.Kind]int{}
	var got []string
	report := func() {
		for _, k := range []ledger.Kind{testKind, otherKind} {
			w.Want(k, 1-held[k]) // a slot for each
		}
		d.Receive(w.Report(0))
	}
	deliver := func(isLost func(Offer) bool) {
		for range 10 {
			d.Match()
			for _, o := range d.Offers() {
				if isLost(o) {
					continue
				}
				taken, _ := w.Receive(o)
				for _, x := range taken {
					held[x.Key.Kind]++
					got = append(got, string(x.Key.BizID))
				}
				report()
			}
		}
	}
	never := func(Offer) bool { return false }
	deliver(never)
	d.Activate(0)
	for _, r := range d.normalReads() {
		d.takeNormal(r.Kind, nil, 0, true)
	}
	d.Apply(d.Open(), []Event{ofKind(testKind, "t1", 1)})
	deliver(func(o Offer) bool { return len(o.Tasks) > 0 }) // lost
	d.Apply(d.Open(), []Event{ofKind(otherKind, "o1", 2)})
	deliver(never)
	for range 20 { // twenty seconds
		report()
		d.Apply(d.Open(), nil)
		d.Probe()
		deliver(never)
	}
	same(t, "tasks", got, []string{"o1", "t1"})
}

// A fail-over has lost the events from version 2 on; a worker holds the task at version 3.
func TestATaskHeldAtALostVersionIsOfferedAgain(t *testing.T) {
	s := newShop(100)
	key := available("t1", 0).Key
	w := s.joinHolding("a", "1", Holding{Key: key, Version: 3})
	s.exchange()
	same(t, "held", s.sessions["1"].holds, 1)
	s.Activate(1)
	for _, r := range s.normalReads() {
		s.takeNormal(r.Kind, []Task{available("t1", 1).Task}, 1, true)
	}
	s.exchange()
	s.end(w, "t1") // its append is refused
	ledgerHas := available("t1", 1).Task
	for range 5 {
		for _, k := range s.Unverified() {
			s.Verify(k, 1, &ledgerHas)
		}
		s.apply()
	}
	same(t, "the worker", w.got, []string{"t1"})
}

// A fail-over has lost a task that a worker holds. The program enqueues it again.
func TestALostTaskThatIsEnqueuedAgainIsOffered(t *testing.T) {
	s := newShop(100)
	key := available("t1", 0).Key
	w := s.joinHolding("a", "1", Holding{Key: key, Version: 1})
	s.exchange()
	s.Activate(0)
	for _, r := range s.normalReads() {
		s.takeNormal(r.Kind, nil, 0, true)
	}
	s.exchange()
	s.end(w, "t1")
	for _, k := range s.Unverified() {
		s.Verify(k, 0, nil)
	}
	s.apply()
	s.apply(available("t1", 1))
	for range 5 {
		task := available("t1", 1).Task
		for _, k := range s.Unverified() {
			s.Verify(k, 1, &task)
		}
		s.apply()
	}
	same(t, "the worker", w.got, []string{"t1"})
}

// Two workers hold the task (the second start that is allowed). The second one answers while the task is read that the
// first one has given back.
func TestATaskThatIsAdoptedWhileItIsReadIsReadAgain(t *testing.T) {
	s := newShop(100)
	key := available("t1", 0).Key
	a := s.joinHolding("a", "1", Holding{Key: key, Version: 1})
	s.exchange()
	b := s.joinHolding("b", "2", Holding{Key: key, Version: 1})
	offers := s.Offers()
	s.end(a, "t1")
	unverified := s.Unverified() // the read begins
	same(t, "to be verified", len(unverified), 1)
	for _, o := range offers {
		if o.Session == "2" {
			b.Receive(o)
		}
	}
	s.Receive(b.Report(0)) // adopts
	task := available("t1", 1).Task
	s.Verify(key, 1, &task) // the read ends
	b.End(key)
	s.Receive(b.Report(0))
	s.Activate(1)
	for _, r := range s.normalReads() {
		s.takeNormal(r.Kind, nil, 0, true)
	}
	for range 5 {
		for _, k := range s.Unverified() {
			s.Verify(k, 1, &task)
		}
		s.apply()
	}
	s.report(a)
	s.report(b)
	s.apply()
	same(t, "offers", len(a.got)+len(b.got), 1)
}

// A hostile worker names a task with a version that does not exist, and goes.
func TestAMadeUpVersionDoesNotLoseATask(t *testing.T) {
	s := newShop(100)
	b := s.join("b", "2", 1, 10, ledger.AllShards)
	s.Join(Lease{Worker: "hostile", Session: "1", Capacity: 10,
		Kinds: map[ledger.Kind]ledger.ShardSet{testKind: 1 << 7}}) // not even of the task's shard
	s.Offers()
	s.Receive(Report{Session: "1", Incarnation: "i", Epoch: 1, After: -1,
		Listed: []Holding{{Key: available("t1", 0).Key, Version: 1<<31 - 1, Number: 0}}, Held: []Range{{0, 0}}})
	s.begin()
	s.apply(available("t1", 1))
	s.Leave("hostile")
	task := available("t1", 1).Task
	for range 5 {
		for _, k := range s.Unverified() {
			s.Verify(k, 1, &task)
		}
		s.apply()
	}
	same(t, "the other worker", b.got, []string{"t1"})
}

// A report asks for kinds that the worker does not have.
func TestSumsAreBounded(t *testing.T) {
	s := newShop(100)
	w := s.join("a", "1", 1, 10, ledger.AllShards)
	for i := range 100 {
		r := w.Report(0)
		for j := range 1000 {
			r.Asked[ledger.Kind(fmt.Sprint(i, j))] = 1
		}
		s.Receive(r)
	}
	if n := len(s.sessions["1"].asked); n > 10 {
		t.Errorf("a session with one kind has %d sums", n)
	}
}

// Listed keys are as long as a message, and each stays in memory.
func TestListedKeysAreBounded(t *testing.T) {
	s := newShop(100)
	s.Join(Lease{Worker: "a", Session: "1", Capacity: 999_999,
		Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	bytes := 0
	for i := range 50 {
		key := available(fmt.Sprintf("%0900000d", i), 0).Key
		after := int64(-1000 + i)
		s.Receive(Report{Session: "1", Incarnation: "i", Epoch: 1, After: after, Through: after + 1,
			Listed: []Holding{{Key: key, Version: 1, Number: after + 1}}})
	}
	for k := range s.tasks {
		bytes += len(k.BizID)
	}
	if bytes > 1<<20 {
		t.Errorf("50 reports keep %d bytes of keys; the limit is 999,999 such", bytes)
	}
}

// A worker's lease ends and it lives again, while an offer is on its way to it.
func TestAnOfferBeforeTheEndOfALeaseDoesNotCountAsOneAfterIt(t *testing.T) {
	d := New("i", 1, 100)
	w := NewWorker("1", "i")
	lease := Lease{Worker: "a", Session: "1", Capacity: 10, Kinds: map[ledger.Kind]ledger.ShardSet{
		testKind: ledger.AllShards}}
	d.Join(lease)
	var got []string
	want := func(n int) { w.Want(testKind, n); d.Receive(w.Report(0)) }
	take := func(offers []Offer) {
		for _, o := range offers {
			taken, _ := w.Receive(o)
			for _, x := range taken {
				got = append(got, string(x.Key.BizID))
			}
		}
	}
	take(d.Offers())
	want(1)
	take(d.Offers())
	want(1)
	d.Activate(0)
	for _, r := range d.normalReads() {
		d.takeNormal(r.Kind, nil, 0, true)
	}
	d.Apply(d.Open(), []Event{available("x", 1)})
	d.Match()
	late := d.Offers() // number 1, on its way
	d.Leave("a")
	d.Join(lease)
	for _, r := range d.normalReads() {
		d.takeNormal(r.Kind, nil, 0, true)
	}
	d.Join(Lease{Worker: "other"}) // claims in SQL
	want(1)                        // a periodic report: nothing received
	d.Apply(d.Open(), []Event{available("x", 1).as(Begun, 2, "other"), available("y", 2)})
	d.Match()
	take(late)
	take(d.Offers()) // the announcement, and y under number 1
	held := len(w.held)
	for range 10 { // the worker has room for a second task; x runs on
		want(2 - held)
		d.Apply(d.Open(), nil)
		d.Probe()
		d.Match()
		take(d.Offers())
	}
	same(t, "tasks that arrive", got, []string{"x", "y"})
}

// After that, an old answer of the epoch is repeated: by a copy, or by anybody on NATS.
func TestAnOldAnswerAfterALeaseLivesAgain(t *testing.T) {
	s := newShop(100)
	var held []Holding
	for i := range 1500 { // from an earlier epoch
		held = append(held, Holding{Key: available(fmt.Sprintf("h%d", i), 0).Key, Version: 1})
	}
	w := s.joinHolding("a", "1", held...)
	var old Report
	for _, o := range s.Offers() {
		w.Receive(o)
		if old.Session == "" {
			old = w.Report(0)
		}
		s.report(w)
	}
	s.exchange()
	same(t, "unanswered", len(s.Unanswered()), 0)
	s.begin()
	w.room = 2000
	s.report(w)
	s.apply(available("t1", 1)) // the offer reports that all is adopted
	same(t, "the worker", w.got, []string{"t1"})
	l := s.Dispatcher.workers["a"].Lease
	s.Leave("a")
	s.Join(l)
	s.Receive(old)
	for range 5 {
		s.Probe()
		s.exchange()
		s.report(w)
	}
	same(t, "unanswered", len(s.Unanswered()), 0)
}

// A worker's lease ends and it lives again. The probe that takes its requests back is lost.
func TestALostProbeAfterALeaseLivesAgain(t *testing.T) {
	s := newShop(100)
	w := s.join("a", "1", 2, 10, ledger.AllShards)
	s.begin()
	s.apply(available("t1", 1))
	same(t, "the worker", w.got, []string{"t1"})
	s.end(w, "t1")
	s.apply(available("t1", 2).as(Ended, 2, "a"))
	l := s.Dispatcher.workers["a"].Lease
	s.Leave("a")
	s.Join(l)
	s.readNothing()
	s.report(w)
	s.Offers() // lost
	s.apply(available("t2", 3))
	for range 20 { // twenty seconds
		s.report(w)
		s.Probe()
		s.apply()
	}
	same(t, "the worker", w.got, []string{"t1", "t2"})
}

// A hostile worker names tasks that do not exist, and goes.
func TestTasksThatDoNotExistAreForgotten(t *testing.T) {
	s := newShop(100)
	for i := range 3 { // another key each time
		session := fmt.Sprint(i)
		s.Join(Lease{Worker: "hostile", Session: session, Capacity: 999_999,
			Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
		s.Offers()
		r := Report{Session: session, Incarnation: "i", Epoch: 1, After: -1000}
		for j := range 1000 {
			r.Listed = append(r.Listed, Holding{Key: available(fmt.Sprint(i, "-", j), 0).Key, Version: 1,
				Number: int64(j - 999)})
		}
		s.Receive(r)
	}
	s.Leave("hostile")
	for range 5 {
		for _, k := range s.Unverified() {
			s.Verify(k, 0, nil)
		}
		s.Apply(s.Open(), nil)
	}
	same(t, "tasks, and doubts that each window visits", []int{len(s.tasks), len(s.doubts)}, []int{0, 0})
}

// A task is in the heap when its position becomes known.
func TestTheOrderHoldsAfterATaskWasVerified(t *testing.T) {
	s := newShop(100)
	a := s.joinHolding("a", "1", Holding{Key: available("t9", 0).Key, Version: 1})
	s.exchange()
	s.Activate(9)
	a.room = 0
	s.end(a, "t9")
	reads := s.normalReads()
	t9 := available("t9", 9).Task
	head := t9
	head.Position = 0 // heads.sql has none
	for _, k := range s.Unverified() {
		s.Verify(k, 1, &head)
	}
	s.Apply(s.Open(), nil)
	for _, r := range reads {
		s.takeNormal(r.Kind, []Task{available("t1", 1).Task, available("t2", 2).Task, t9}, 9, true)
	}
	b := s.join("b", "2", 1, 10, ledger.AllShards)
	s.exchange()
	same(t, "the first task", b.got, []string{"t1"})
}

// A login with the role worker has another key and another kind in its lease each time.
func TestKindsWithoutWorkersAreForgotten(t *testing.T) {
	s := newShop(100)
	s.Activate(0)
	for i := range 1000 {
		s.Join(Lease{Worker: "hostile", Session: fmt.Sprint(i),
			Kinds: map[ledger.Kind]ledger.ShardSet{ledger.Kind(fmt.Sprint("k", i)): 1}})
	}
	same(t, "queues and reads of kinds that no worker has", []int{len(s.queues), len(s.normalReads())}, []int{1, 1})
}

// A hostile worker lists a task under a number that it was never given, takes another one, and goes.
func TestAMadeUpNumberDoesNotLoseTasks(t *testing.T) {
	for _, number := range []int64{1, math.MaxInt64} {
		s := newShop(100)
		s.Join(Lease{Worker: "hostile", Session: "1", Capacity: 10,
			Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
		s.Offers()
		s.Receive(Report{Session: "1", Incarnation: "i", Epoch: 1, After: -1,
			Asked:  map[ledger.Kind]int64{testKind: 1},
			Listed: []Holding{{Key: available("t1", 0).Key, Version: 1, Number: number}}})
		s.Receive(Report{Session: "1", Incarnation: "i", Epoch: 1, Asked: map[ledger.Kind]int64{testKind: 2}})
		s.begin()
		s.apply(available("t1", 1), available("t2", 2))
		b := s.join("b", "2", 2, 10, ledger.AllShards)
		s.Leave("hostile")
		task := available("t1", 1).Task
		for range 5 {
			for _, k := range s.Unverified() {
				s.Verify(k, 1, &task)
			}
			s.apply()
		}
		slices.Sort(b.got)
		same(t, fmt.Sprint("the other worker, after number ", number), b.got, []string{"t1", "t2"})
	}
}

// A login with many leases has another key in each, again and again. A session begins with numbers above those of all
// that have left, and they do not run out: with a sum of them that is too large, the dispatcher ended.
func TestNumbersDoNotRunOut(t *testing.T) {
	const workers, sessions = 20, 20_000
	s := newShop(100)
	for i := range sessions {
		s.Join(Lease{Worker: fmt.Sprint("w", i%workers), Session: fmt.Sprint(i), Capacity: 1,
			Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	}
	s.Offers()
	for worker, one := range s.Dispatcher.workers {
		if one.sent > sessions {
			t.Errorf("the last session of %s begins after number %d", worker, one.sent)
		}
	}
	s.begin()
	w := s.join("w0", "last", 1, 1, ledger.AllShards)
	s.readNothing()
	s.apply(available("t1", 1))
	same(t, "the worker", w.got, []string{"t1"})
}

// A worker gives back a task that it has named, and the task is read. Meanwhile another worker begins it.
func TestATaskThatBeginsWhileItIsReadIsReadAgain(t *testing.T) {
	s := newShop(100)
	a := s.joinHolding("a", "1", Holding{Key: available("t1", 0).Key, Version: 1})
	s.Join(Lease{Worker: "sql", Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	s.exchange()
	a.room = 0
	s.end(a, "t1")
	keys := s.Unverified() // the read begins
	same(t, "to be verified", len(keys), 1)
	s.begin()
	s.apply(available("t1", 1).as(Begun, 2, "sql"))
	old := available("t1", 1).Task
	s.Verify(keys[0], 1, &old) // the read ends
	now := s.tasks[keys[0]]
	same(t, "the task", fmt.Sprintf("%d %s %t", now.Version, now.Actor, now.place == running), "2 sql true")
	s.Verify(keys[0], 3, nil) // or it had ended when it was read
	same(t, "the place of the task", now.place, running)
	s.apply(available("t1", 1).as(Ended, 3, "sql"))
	same(t, "tasks in memory", []int{len(s.tasks), len(s.running["sql"])}, []int{0, 0})
}

// A worker names many tasks, and goes: no statement reads all of them.
func TestManyTasksAreVerifiedStepByStep(t *testing.T) {
	s := newShop(100)
	const tasks = 2*maxUnverified + 1
	s.Join(Lease{Worker: "a", Session: "1", Capacity: 999_999,
		Kinds: map[ledger.Kind]ledger.ShardSet{testKind: ledger.AllShards}})
	for n := 0; n < tasks; n += maxListed {
		r := Report{Session: "1", Incarnation: "i", Epoch: 1, After: int64(n - tasks)}
		r.Through = min(0, r.After+maxListed)
		for i := r.After + 1; i <= r.Through; i++ {
			r.Listed = append(r.Listed, Holding{Key: available(fmt.Sprint(-i), 0).Key, Version: 1, Number: i})
		}
		s.Receive(r)
	}
	same(t, "held", s.sessions["1"].holds, tasks)
	s.Leave("a")
	for _, want := range []int{maxUnverified, maxUnverified, 1, 0} {
		keys := s.Unverified()
		same(t, "tasks in a statement", len(keys), want)
		for _, k := range keys {
			s.Verify(k, 0, nil)
		}
	}
	s.apply()
	same(t, "tasks in memory", len(s.tasks), 0)
}
