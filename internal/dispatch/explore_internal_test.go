package dispatch

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/longtest"
)

var isDeep = flag.Bool("explore", false, "search the large worlds too")

// TestMain lets the garbage collector run less often: most of what a search allocates is kept for a moment only.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(500)
	os.Exit(m.Run())
}

// search visits every world that can follow the first one. Two promises must hold in each: no handler begins twice
// without an excuse, and all tasks can still end without another fault.
type search struct {
	first   *world
	isDepth bool // depth first, which breaks a promise sooner; breadth first finds the shortest way to break it
	ids     map[[16]byte]int32
	parents []int32
	acts    []int32 // by world: the number of the act that led to it
	from    []int32 // edges without a fault: from a world
	to      []int32 // to a world
	isEnd   []bool
}

// visit is a world to be visited.
type visit struct {
	id    int32
	world *world
}

func newSearch(w *world) *search { return &search{first: w, ids: map[[16]byte]int32{}} }

func (s *search) add(w *world, parent, act int32) (id int32, isNew bool) {
	sum := sha256.Sum256([]byte(w.key()))
	key := [16]byte(sum[:])
	if id, ok := s.ids[key]; ok {
		return id, false
	}
	id = int32(len(s.parents))
	s.ids[key] = id
	s.parents, s.acts = append(s.parents, parent), append(s.acts, act)
	s.isEnd = append(s.isEnd, false)
	return id, true
}

// run returns "" if the promises hold in all worlds. Otherwise it returns the promise and the acts that break it, or
// that there are more than limit worlds.
func (s *search) run(limit int) string {
	s.add(s.first, -1, -1)
	frontier := []visit{{0, s.first}}
	for len(frontier) > 0 {
		next := 0
		if s.isDepth {
			next = len(frontier) - 1
		}
		id, w := frontier[next].id, frontier[next].world
		frontier[next].world = nil
		if s.isDepth {
			frontier = frontier[:next]
		} else {
			frontier = frontier[1:]
		}
		twice, isDone := w.verdict()
		if twice >= 0 {
			return "a handler begins twice:\n" + s.trace(id)
		}
		s.isEnd[id] = isDone
		first := len(frontier)
		for i, a := range w.acts() {
			n := w.clone()
			a.do(n)
			next, isNew := s.add(n, id, int32(i))
			if isNew {
				frontier = append(frontier, visit{next, n})
			}
			if !a.isFault {
				s.from, s.to = append(s.from, id), append(s.to, next)
			}
		}
		if s.isDepth { // the first act leads to the next visit
			slices.Reverse(frontier[first:])
		}
		if len(s.parents) > limit {
			return fmt.Sprintf("more than %d worlds", limit)
		}
	}
	if stuck := s.stuck(); stuck >= 0 {
		return "a task is never done:\n" + s.trace(stuck)
	}
	return ""
}

// stuck returns the first world that does not lead to an end without a fault, or -1.
func (s *search) stuck() int32 {
	before := make([][]int32, len(s.parents))
	for i, to := range s.to {
		before[to] = append(before[to], s.from[i])
	}
	var reached []int32
	for id, is := range s.isEnd {
		if is {
			reached = append(reached, int32(id))
		}
	}
	for len(reached) > 0 {
		id := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		for _, b := range before[id] {
			if !s.isEnd[b] {
				s.isEnd[b] = true
				reached = append(reached, b)
			}
		}
	}
	for id, is := range s.isEnd {
		if !is {
			return int32(id)
		}
	}
	return -1
}

// trace returns the acts that lead to a world.
func (s *search) trace(id int32) string {
	var way []int32
	for ; id > 0; id = s.parents[id] {
		way = append(way, s.acts[id])
	}
	var lines []string
	w := s.first.clone()
	for i := len(way) - 1; i >= 0; i-- {
		a := w.acts()[way[i]]
		lines = append(lines, "  "+a.name())
		n := w.clone()
		a.do(n)
		w = n
	}
	return strings.Join(lines, "\n")
}

// setups are the worlds that are searched. Those marked long are searched in CI, those marked deep with -explore.
var setups = []struct {
	setup

	isLong, isDeep bool
}{
	{setup: setup{name: "loss", tasks: 2, workers: 1, capacity: 1, limit: 2, losses: 1, isSlow: true}},
	{setup: setup{name: "losses", tasks: 1, workers: 1, capacity: 1, limit: 2, losses: 2, isSlow: true}},
	{setup: setup{name: "copy", tasks: 1, workers: 1, capacity: 1, limit: 2, losses: 1, copies: 1, isSlow: true}},
	{setup: setup{name: "beat", tasks: 1, workers: 1, capacity: 1, limit: 2, copies: 1, beats: 1}},
	{isLong: true, setup: setup{name: "beat, two workers", tasks: 1, workers: 2, capacity: 1, limit: 2, copies: 1,
		beats: 1}},
	{setup: setup{name: "give back", tasks: 1, workers: 2, capacity: 1, limit: 2, giveBacks: 1, isSlow: true}},
	{setup: setup{name: "late commit", tasks: 3, workers: 1, capacity: 1, limit: 1, hasLateCommit: true, isSlow: true}},
	{setup: setup{name: "partitions", tasks: 3, workers: 1, capacity: 1, limit: 1, partitions: 2, hasLateCommit: true,
		isSlow: true}},
	{setup: setup{name: "partitions, loss", tasks: 3, workers: 1, capacity: 2, limit: 2, partitions: 3, losses: 1}},
	{setup: setup{name: "hint", tasks: 2, workers: 1, capacity: 1, limit: 2, hasLateCommit: true, hints: 2,
		isSlow: true}},
	{isLong: true, setup: setup{name: "hint, loss", tasks: 2, workers: 1, capacity: 2, limit: 2, hasLateCommit: true,
		hints: 1, losses: 1}},
	{setup: setup{name: "silence", tasks: 1, workers: 2, capacity: 1, limit: 2, silences: 1}},
	{setup: setup{name: "silence, loss", tasks: 2, workers: 1, capacity: 1, limit: 2, silences: 1, losses: 1,
		isSlow: true}},
	{setup: setup{name: "lapse", tasks: 1, workers: 1, capacity: 1, limit: 2, lapses: 1}},
	{isLong: true, setup: setup{name: "lapse, two workers", tasks: 1, workers: 2, capacity: 1, limit: 2, lapses: 1}},
	{setup: setup{name: "lapse, loss", tasks: 2, workers: 1, capacity: 1, limit: 2, lapses: 1, losses: 1}},
	{setup: setup{name: "lapse, copy", tasks: 1, workers: 1, capacity: 1, limit: 2, lapses: 1, copies: 1}},
	{setup: setup{name: "kill", tasks: 1, workers: 1, capacity: 1, limit: 2, hasTakeOver: true, isDead: true}},
	{setup: setup{name: "kill, loss", tasks: 1, workers: 1, capacity: 1, limit: 2, hasTakeOver: true, isDead: true,
		losses: 1}},
	{setup: setup{name: "take-over", tasks: 1, workers: 1, capacity: 1, limit: 2, hasTakeOver: true}},
	{isLong: true, setup: setup{name: "take-over, old announcement", tasks: 1, workers: 1, capacity: 1, limit: 2,
		hasTakeOver: true, hasOldAnnouncement: true}},
	{isDeep: true, setup: setup{name: "kill, slow", tasks: 1, workers: 1, capacity: 1, limit: 2, hasTakeOver: true,
		isDead: true, isSlow: true}},
	{isDeep: true, setup: setup{name: "kill, slow, give back", tasks: 1, workers: 1, capacity: 1, limit: 2,
		hasTakeOver: true, isDead: true, isSlow: true, giveBacks: 1}},
	{isDeep: true, setup: setup{name: "take-over, copy", tasks: 1, workers: 1, capacity: 1, limit: 2, hasTakeOver: true,
		copies: 1}},
	{isDeep: true, setup: setup{name: "kill, two workers", tasks: 1, workers: 2, capacity: 1, limit: 2,
		hasTakeOver: true, isDead: true}},
	{isDeep: true, setup: setup{name: "take-over, two workers", tasks: 1, workers: 2, capacity: 1, limit: 2,
		hasTakeOver: true}},
	{isDeep: true, setup: setup{name: "two reports on their way", tasks: 2, workers: 1, capacity: 1, limit: 2,
		losses: 1, reports: 2, isSlow: true}},
	{isDeep: true, setup: setup{name: "loss, two workers", tasks: 2, workers: 2, capacity: 1, limit: 2, losses: 1}},
	{isDeep: true, setup: setup{name: "take-over, two tasks", tasks: 2, workers: 1, capacity: 2, limit: 2,
		hasTakeOver: true, losses: 1}},
}

// TestExplore searches each world completely.
func TestExplore(t *testing.T) {
	for i := range setups {
		s := &setups[i]
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			if s.isLong && !longtest.IsSet() {
				t.Skip("a search of ten seconds: " + longtest.Variable)
			}
			if s.isDeep && !*isDeep {
				t.Skip("a search of minutes: -explore")
			}
			search := newSearch(newWorld(&s.setup, 0))
			if fault := search.run(20_000_000); fault != "" {
				t.Fatal(fault)
			}
			t.Logf("%d worlds", len(search.parents))
		})
	}
}

// mutants are the rules that are left out, one at a time, each with the world in which that breaks a promise.
var mutants = []struct {
	name   string
	mutant mutant
	world  string
}{
	{name: "a task that is dropped is ready at once", mutant: freesAtOnce, world: "loss"},
	{name: "a report frees later offers", mutant: freesByKey, world: "loss"},
	{name: "a report frees nothing", mutant: neverFrees, world: "loss"},
	{name: "an offer is accepted twice", mutant: lateIsAccepted, world: "copy"},
	{name: "credit is counted", mutant: creditIsCounted, world: "loss"},
	{name: "epochs fall", mutant: epochsFall, world: "kill"},
	{name: "nothing is repeated", mutant: neverProbes, world: "loss"},
	{name: "nothing is adopted", mutant: adoptsNothing, world: "kill"},
	{name: "an earlier window ends a doubt", mutant: earlierWindow, world: "loss"},
	{name: "a late commit is skipped", mutant: skipsLate, world: "late commit"},
	{name: "an old read is taken", mutant: readsOld, world: "late commit"},
	{name: "an event that is known does not count during a read", mutant: forgetsKnown, world: "kill, slow"},
	{name: "a hint is taken late", mutant: lateHints, world: "hint"},
	{name: "the word of a worker is enough", mutant: isUnverified, world: "kill"},
	{name: "the ledger is read before the answers", mutant: readsBefore, world: "kill"},
	{name: "partitions are not searched", mutant: forgetsPartitions, world: "partitions"},
	{name: "a silent worker accepts from the predecessor", mutant: hasNoBarrier, world: "kill"},
}

// TestEachRuleIsNeeded leaves out each rule.
func TestEachRuleIsNeeded(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			for i := range setups {
				s := &setups[i]
				if s.name != m.world {
					continue
				}
				search := newSearch(newWorld(&s.setup, m.mutant))
				search.isDepth = true
				fault := search.run(1_000_000)
				if fault == "" {
					t.Fatal("no promise is broken")
				}
				t.Logf("after %d worlds: %s", len(search.parents), fault)
				return
			}
			t.Errorf("no world %q", m.world)
		})
	}
}
