package dispatch

import (
	"fmt"
	"math/rand/v2"

	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

func (e Event) of(partition string) Event {
	e.Partition = partition
	return e
}

// fairness compares the offers of partitions that have had ready tasks for the same time.
type fairness struct {
	weights map[string]float64
	// For each ordered pair, the lowest value since both have had tasks of the first one's offers by weight, less the
	// second one's; and the offers by weight themselves.
	lowest map[[2]string]float64
	served map[string]float64
	since  map[string]bool // with ready tasks
}

func newFairness(weights map[string]float64) *fairness {
	return &fairness{weights: weights, lowest: map[[2]string]float64{}, served: map[string]float64{},
		since: map[string]bool{}}
}

// step takes the partitions with ready tasks, after an offer to one, or "". It returns a fault: of two partitions that
// both have had tasks since a moment, one got more than its share since then, by more than one offer of each.
func (f *fairness) step(offered string, ready map[string]bool) string {
	if offered != "" {
		f.served[offered] += 1 / f.weights[offered]
	}
	for a := range f.weights {
		for b := range f.weights {
			pair := [2]string{a, b}
			lead := f.served[a] - f.served[b]
			_, isKnown := f.lowest[pair]
			switch {
			case a == b:
			case !ready[a] && a != offered || !ready[b] && b != offered:
				delete(f.lowest, pair)
			case !isKnown:
				f.lowest[pair] = lead
			case lead-f.lowest[pair] > 1/f.weights[a]+1/f.weights[b]+1e-9:
				return fmt.Sprintf("%s got %.2f more than %s by weight", a, lead-f.lowest[pair], b)
			default:
				f.lowest[pair] = min(f.lowest[pair], lead)
			}
		}
	}
	return ""
}

// waits lets partitions of different weights get tasks at random moments and in bursts, and offers them one by one. It
// returns the first fault.
func waits(seed uint64, m mutant) string {
	random := rand.New(rand.NewPCG(seed, 2))
	weights := map[string]float64{"a": 1, "b": 1, "c": 4, "d": 0.5} // exact in binary
	names := []string{"a", "b", "c", "d"}
	s := newShop(10_000)
	s.mutant = m
	s.SetWeights(weights)
	w := s.join("w", "1", 0, 1<<20, ledger.AllShards)
	s.begin()
	f := newFairness(weights)
	position, waiting := 0, map[string]int{}
	ready := func() map[string]bool {
		all := map[string]bool{}
		for name, n := range waiting {
			all[name] = n > 0
		}
		return all
	}
	for range 600 {
		if name := names[random.IntN(4)]; random.IntN(20) == 0 {
			for range 1 + random.IntN(60) {
				position++
				waiting[name]++
				s.apply(available(fmt.Sprint(name, position), position).of(name).in(ledger.Shard(random.IntN(64))))
			}
			if fault := f.step("", ready()); fault != "" {
				return fault
			}
		}
		before := len(w.got)
		w.room = before + 1
		s.report(w)
		s.exchange()
		w.room = 0
		s.report(w)
		for _, id := range w.got[before:] {
			waiting[id[:1]]--
			if fault := f.step(id[:1], ready()); fault != "" {
				return fault
			}
		}
	}
	if s.queues[testKind].size > 0 && len(w.got) == 0 {
		return "nothing was offered"
	}
	return ""
}

// No partition with a ready task waits longer than its share, whatever the others do.
func TestNoPartitionWaitsLongerThanItsShare(t *testing.T) {
	for seed := range uint64(20) {
		if fault := waits(seed, 0); fault != "" {
			t.Fatalf("seed %d: %s", seed, fault)
		}
	}
	for name, m := range map[string]mutant{"takes no turns": takesNoTurns, "saves turns": savesTurns} {
		isFound := false
		for seed := range uint64(20) {
			isFound = isFound || waits(seed, m) != ""
		}
		if !isFound {
			t.Errorf("%s: no fault is found", name)
		}
	}
}

// A new weight counts for the next offers.
func TestWeightsChange(t *testing.T) {
	s := newShop(1000)
	w := s.join("w", "1", 0, 1000, ledger.AllShards)
	s.begin()
	for i := range 400 {
		s.apply(available(fmt.Sprint("a", i), 2*i+1).of("a"), available(fmt.Sprint("b", i), 2*i+2).of("b"))
	}
	offer := func(n int) (ofA int) {
		before := len(w.got)
		w.room += n
		s.report(w)
		s.exchange()
		for _, id := range w.got[before:] {
			ofA += strings.Count(id, "a")
		}
		return ofA
	}
	same(t, "equal weights", offer(40), 20)
	s.SetWeights(map[string]float64{"a": 3})
	if n := offer(40); n < 29 || n > 31 {
		t.Errorf("with weight 3 a gets %d of 40 offers", n)
	}
	s.SetWeights(nil)
	if n := offer(40); n < 19 || n > 21 {
		t.Errorf("without weights a gets %d of 40 offers", n)
	}
}

// Many tasks of one partition fill the memory and are spilled. The tasks of hundreds of others begin in turn, from
// windows as from the ledger after a restart, and the memory stays bounded.
func TestPartitionsShareTheMemory(t *testing.T) {
	const limit, big, small = 256, 4000, 400
	taskAt := func(i int) Task {
		if i <= big {
			return available(fmt.Sprint("big", i), i).of("big").Task
		}
		return available(fmt.Sprint("small", i), i).of(fmt.Sprint("p", i)).Task
	}
	isGone := make([]bool, big+small+1)
	answer := func(s *shop) {
		for _, r := range s.Searches() {
			f := Found{IsEnd: true, IsWhole: true}
			for i := 1; i <= big+small && r.Priority == ledger.PriorityNormal; i++ {
				if name := taskAt(i).Partition; !isGone[i] && name > r.Partition &&
					(len(f.Listed) == 0 || f.Listed[len(f.Listed)-1] != name) { // the names are in order, but big
					f.Listed = append(f.Listed, name)
				}
			}
			if f.IsEnd = len(f.Listed) <= r.Limit; !f.IsEnd {
				f.Listed = f.Listed[:r.Limit]
			}
			s.TakeSearch(r, f, false)
		}
		for _, r := range s.Reads() {
			var rows []Task
			end := big + small
			if r.Priority != ledger.PriorityNormal {
				end = 0
			}
			for i := int(r.After) + 1; i <= end && len(rows) < r.Limit; i++ {
				if one := taskAt(i); !isGone[i] && one.Partition == r.Partition {
					rows = append(rows, one)
				}
				if i > big && !strings.HasPrefix(r.Partition, "p") {
					break
				}
				if i <= big && strings.HasPrefix(r.Partition, "p") {
					i = big
				}
			}
			s.TakeRead(r, rows, max(r.After, last(rows)), len(rows) < r.Limit)
		}
		s.exchange()
	}
	for name, deliver := range map[string]func(*shop){
		"from the ledger": func(s *shop) {
			for range 10 {
				answer(s)
			}
		},
		"by windows": func(s *shop) {
			for range 3 {
				for _, r := range s.Searches() {
					s.TakeSearch(r, Found{IsEnd: true, IsWhole: true}, false)
				}
				for _, r := range s.Reads() {
					s.TakeRead(r, nil, 0, true)
				}
			}
			for i := 1; i <= big+small; i++ {
				s.apply(Event{Task: taskAt(i), Change: Available})
			}
		},
	} {
		clear(isGone)
		s := newShop(limit)
		w := s.join("w", "1", 0, 2*(big+small), ledger.AllShards)
		s.Activate(0)
		deliver(s)
		highest, smallAt := len(s.tasks), 0
		for n := 0; n < big+small && smallAt == 0; {
			w.room += 50
			s.report(w)
			s.exchange()
			answer(s)
			n, highest = len(w.got), max(highest, len(s.tasks)-len(w.got))
			got := 0
			for _, id := range w.got {
				if strings.HasPrefix(id, "small") {
					got++
				}
			}
			if got == small {
				smallAt = n
			}
		}
		if smallAt == 0 || smallAt > 2*small+200 {
			t.Errorf("%s: the tasks of the small partitions had begun after %d offers", name, smallAt)
		}
		if highest > 2*limit+limit/2 {
			t.Errorf("%s: %d tasks in memory", name, highest)
		}

	}
}
